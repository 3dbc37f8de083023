package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** DefaultMQProducer: sends of every kind, and the questions that every client can ask. */
@SuppressWarnings("deprecation")
final class Producers {
    private static final long ASYNC_TIMEOUT_S = 30;
    private static final MessageQueueSelector BY_NUMBER =
        (queues, message, number) -> queues.get((Integer) number % queues.size());
    private static final MessageQueueSelector BY_HASH = new SelectMessageQueueByHash();

    private final Named<DefaultMQProducer> producers;

    Producers(String nameserver) {
        producers = new Named<>(nameserver);
    }

    Object run(String verb, JSONObject request) throws Exception {
        return switch (verb) {
            case "start" -> start(request);
            case "stop" -> stop(request);
            case "send" -> sendEach(request, (producer, message) -> producer.send(message));
            case "send ordered" -> sendEach(request,
                (producer, message) -> producer.send(message, BY_NUMBER, request.getInteger("number")));
            case "send by key" -> sendEach(request,
                (producer, message) -> producer.send(message, BY_HASH, request.getString("key")));
            case "send to queue" -> sendEach(request,
                (producer, message) -> producer.send(message, queue(request)));
            case "send async" -> sendAsync(request);
            case "send one-way" -> sendOneWay(request);
            case "send batch" -> sendBatch(request);
            case "create topic" -> createTopic(request);
            case "queues" -> Messages.describeQueues(
                producers.get(request).fetchPublishMessageQueues(request.getString("topic")));
            case "min offset" -> producers.get(request).minOffset(queue(request));
            case "max offset" -> producers.get(request).maxOffset(queue(request));
            case "search offset" -> producers.get(request).searchOffset(queue(request), request.getLongValue("ms"));
            case "earliest time" -> producers.get(request).earliestMsgStoreTime(queue(request));
            case "view" -> Messages.describe(producers.get(request).viewMessage(request.getString("messageId")));
            case "view by unique key" -> Messages.describe(producers.get(request)
                .viewMessage(request.getString("topic"), request.getString("messageId")));
            case "query by key" -> Messages.describeAll(producers.get(request).queryMessage(
                request.getString("topic"), request.getString("key"), request.getIntValue("max"),
                request.getLongValue("begin"), request.getLongValue("end")).getMessageList());
            default -> throw new IllegalArgumentException(verb);
        };
    }

    private Object start(JSONObject request) throws MQClientException {
        DefaultMQProducer producer = new DefaultMQProducer(
            request.getString("group"), Named.hook(request), request.getBooleanValue("trace"), null);
        producers.configure(producer, request);
        if (request.containsKey("sendTimeoutMs")) {
            producer.setSendMsgTimeout(request.getIntValue("sendTimeoutMs"));
        }
        if (request.containsKey("maxMessageBytes")) {
            producer.setMaxMessageSize(request.getIntValue("maxMessageBytes"));
        }
        if (request.containsKey("compressOverBytes")) {
            producer.setCompressMsgBodyOverHowmuch(request.getIntValue("compressOverBytes"));
        }
        producer.start();
        producers.put(request, producer);
        return producer.buildMQClientId();
    }

    private Object stop(JSONObject request) {
        producers.remove(request).shutdown();
        return true;
    }

    private interface Send {
        SendResult send(DefaultMQProducer producer, Message message) throws Exception;
    }

    private Object sendEach(JSONObject request, Send send) throws Exception {
        JSONArray results = new JSONArray();
        for (Message message : Messages.parse(request)) {
            results.add(Messages.describe(send.send(producers.get(request), message)));
        }
        return results;
    }

    private Object sendAsync(JSONObject request) throws Exception {
        List<Message> messages = Messages.parse(request);
        Object[] results = new Object[messages.size()];
        CountDownLatch answered = new CountDownLatch(results.length);
        for (int i = 0; i < results.length; i++) {
            int at = i;
            producers.get(request).send(messages.get(at), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    results[at] = Messages.describe(result);
                    answered.countDown();
                }

                @Override
                public void onException(Throwable failure) {
                    results[at] = Main.describe(failure);
                    answered.countDown();
                }
            });
        }
        if (!answered.await(ASYNC_TIMEOUT_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(answered.getCount() + " sends were never called back");
        }
        return results;
    }

    private Object sendOneWay(JSONObject request) throws Exception {
        for (Message message : Messages.parse(request)) {
            producers.get(request).sendOneway(message);
        }
        return true;
    }

    private Object sendBatch(JSONObject request) throws Exception {
        DefaultMQProducer producer = producers.get(request);
        return Messages.describe(producer.send(Messages.parse(request)));
    }

    private Object createTopic(JSONObject request) throws MQClientException {
        producers.get(request).createTopic(
            request.getString("key"), request.getString("topic"), request.getIntValue("queues"));
        return true;
    }

    private static MessageQueue queue(JSONObject request) {
        return Messages.parseQueue(request.getJSONObject("queue"));
    }
}
