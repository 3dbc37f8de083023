package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * TransactionMQProducer. The local transaction of a message ends in the state that the request to send it names;
 * a broker that asks is told the states in the message's property `checkStates`, one after the other, and the
 * last of them for ever.
 */
final class TransactionProducers {
    private final Named<Sender> senders;

    TransactionProducers(String nameserver) {
        senders = new Named<>(nameserver);
    }

    Object run(String verb, JSONObject request) throws MQClientException {
        return switch (verb) {
            case "start" -> start(request);
            case "send" -> senders.get(request).send(request);
            case "checks" -> senders.get(request).checks();
            case "stop" -> {
                senders.remove(request).producer.shutdown();
                yield true;
            }
            default -> throw new IllegalArgumentException(verb);
        };
    }

    private Object start(JSONObject request) throws MQClientException {
        Sender sender = new Sender(request);
        senders.configure(sender.producer, request);
        sender.producer.start();
        senders.put(request, sender);
        return sender.producer.buildMQClientId();
    }

    private static final class Sender implements TransactionListener {
        final TransactionMQProducer producer;
        private final JSONArray checks = new JSONArray();
        private final Map<String, Integer> asked = new ConcurrentHashMap<>();

        Sender(JSONObject request) {
            producer = new TransactionMQProducer(request.getString("group"), Named.hook(request));
            producer.setTransactionListener(this);
        }

        JSONArray send(JSONObject request) throws MQClientException {
            LocalTransactionState state = LocalTransactionState.valueOf(request.getString("state"));
            JSONArray results = new JSONArray();
            for (Message message : Messages.parse(request)) {
                TransactionSendResult result = producer.sendMessageInTransaction(message, state);
                JSONObject description = Messages.describe(result);
                description.put("state", result.getLocalTransactionState().name());
                description.put("transactionId", result.getTransactionId());
                results.add(description);
            }
            return results;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object state) {
            return (LocalTransactionState) state;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String[] states = message.getUserProperty("checkStates").split(",");
            int times = asked.merge(message.getTransactionId(), 1, Integer::sum);
            synchronized (checks) {
                checks.add(Messages.describe(message));
            }
            return LocalTransactionState.valueOf(states[Math.min(times, states.length) - 1]);
        }

        JSONArray checks() {
            synchronized (checks) {
                JSONArray taken = new JSONArray();
                taken.addAll(checks);
                return taken;
            }
        }
    }
}
