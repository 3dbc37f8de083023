package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Requests and replies: producers that ask, and consumers that reply with "re: " and the body they got. */
final class Requests {
    private static final byte[] PREFIX = "re: ".getBytes(StandardCharsets.UTF_8);

    private final Named<DefaultMQProducer> askers;
    private final Named<Replier> repliers;

    Requests(String nameserver) {
        askers = new Named<>(nameserver);
        repliers = new Named<>(nameserver);
    }

    Object run(String verb, JSONObject request) throws Exception {
        return switch (verb) {
            case "start asker" -> startAsker(request);
            case "ask" -> ask(request);
            case "stop asker" -> {
                askers.remove(request).shutdown();
                yield true;
            }
            case "start replier" -> startReplier(request);
            case "stop replier" -> {
                repliers.remove(request).stop();
                yield true;
            }
            default -> throw new IllegalArgumentException(verb);
        };
    }

    private Object startAsker(JSONObject request) throws MQClientException {
        DefaultMQProducer producer = new DefaultMQProducer(request.getString("group"), Named.hook(request));
        askers.configure(producer, request);
        producer.start();
        askers.put(request, producer);
        return producer.buildMQClientId();
    }

    private JSONArray ask(JSONObject request) throws Exception {
        JSONArray replies = new JSONArray();
        for (Message message : Messages.parse(request)) {
            Message reply = askers.get(request).request(message, request.getLongValue("timeoutMs"));
            JSONObject description = new JSONObject(true);
            description.put("topic", reply.getTopic());
            description.put("body", Base64.getEncoder().encodeToString(reply.getBody()));
            description.put("properties", new TreeMap<>(reply.getProperties()));
            replies.add(description);
        }
        return replies;
    }

    private Object startReplier(JSONObject request) throws MQClientException {
        Replier replier = new Replier(request);
        repliers.configure(replier.consumer, request);
        repliers.configure(replier.producer, request);
        replier.start();
        repliers.put(request, replier);
        return replier.consumer.buildMQClientId();
    }

    private static final class Replier {
        final DefaultMQPushConsumer consumer;
        final DefaultMQProducer producer;

        Replier(JSONObject request) throws MQClientException {
            String group = request.getString("group");
            consumer = new DefaultMQPushConsumer(group);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(request.getString("topic"), "*");
            consumer.registerMessageListener((MessageListenerConcurrently) this::reply);
            producer = new DefaultMQProducer(group);
        }

        void start() throws MQClientException {
            producer.start();
            consumer.start();
        }

        void stop() {
            consumer.shutdown();
            producer.shutdown();
        }

        private ConsumeConcurrentlyStatus reply(List<MessageExt> messages, ConsumeConcurrentlyContext context) {
            try {
                for (MessageExt message : messages) {
                    byte[] body = Arrays.copyOf(PREFIX, PREFIX.length + message.getBody().length);
                    System.arraycopy(message.getBody(), 0, body, PREFIX.length, message.getBody().length);
                    producer.send(MessageUtil.createReplyMessage(message, body));
                }
            } catch (Exception failure) {
                failure.printStackTrace();
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }
    }
}
