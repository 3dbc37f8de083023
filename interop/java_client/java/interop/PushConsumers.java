package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/** DefaultMQPushConsumer: what came in stays in a list until it is asked for. */
@SuppressWarnings("deprecation")
final class PushConsumers {
    private final Named<Consumer> consumers;

    PushConsumers(String nameserver) {
        consumers = new Named<>(nameserver);
    }

    Object run(String verb, JSONObject request) throws MQClientException {
        return switch (verb) {
            case "start" -> start(request);
            case "received" -> consumers.get(request).received();
            case "queues" -> consumers.get(request).queues(request.getString("topic"));
            case "suspend" -> consumers.get(request).suspend(request.getBooleanValue("suspended"));
            case "stop" -> consumers.remove(request).stop();
            default -> throw new IllegalArgumentException(verb);
        };
    }

    private Object start(JSONObject request) throws MQClientException {
        Consumer consumer = new Consumer(request);
        consumers.configure(consumer.client, request);
        consumer.client.start();
        consumers.put(request, consumer);
        return consumer.client.buildMQClientId();
    }

    /** One consumer; each message fails as often as the request to start it says. */
    private static final class Consumer {
        private static final long ORDERLY_PAUSE_MS = 200;

        final DefaultMQPushConsumer client;
        private final JSONArray received = new JSONArray();
        private final Map<String, Integer> attempts = new ConcurrentHashMap<>();
        private final int failures;
        private final Integer delayLevel;
        private final long consumeMs;

        Consumer(JSONObject request) throws MQClientException {
            failures = request.getIntValue("failures");
            delayLevel = request.getInteger("delayLevel");
            consumeMs = request.getLongValue("consumeMs");
            client = new DefaultMQPushConsumer(
                request.getString("group"), Named.hook(request), strategy(request),
                request.getBooleanValue("trace"), null);
            client.setConsumeFromWhere(ConsumeFromWhere.valueOf(request.getString("from")));
            client.setMessageModel(MessageModel.valueOf(request.getString("model")));
            if (request.containsKey("reconsumeTimesMax")) {
                client.setMaxReconsumeTimes(request.getIntValue("reconsumeTimesMax"));
            }
            if (request.containsKey("persistMs")) {
                client.setPersistConsumerOffsetInterval(request.getIntValue("persistMs"));
            }
            String topic = request.getString("topic");
            if (request.containsKey("sql")) {
                client.subscribe(topic, MessageSelector.bySql(request.getString("sql")));
            } else {
                client.subscribe(topic, request.getString("expression"));
            }
            if (request.getBooleanValue("orderly")) {
                client.registerMessageListener((MessageListenerOrderly) this::consumeOrderly);
            } else {
                client.registerMessageListener((MessageListenerConcurrently) this::consumeConcurrently);
            }
        }

        private static AllocateMessageQueueStrategy strategy(JSONObject request) {
            String name = request.containsKey("strategy") ? request.getString("strategy") : "AVG";
            return switch (name) {
                case "AVG" -> new AllocateMessageQueueAveragely();
                case "AVG_BY_CIRCLE" -> new AllocateMessageQueueAveragelyByCircle();
                case "CONSISTENT_HASH" -> new AllocateMessageQueueConsistentHash();
                default -> throw new IllegalArgumentException(name);
            };
        }

        private ConsumeConcurrentlyStatus consumeConcurrently(
            List<MessageExt> messages, ConsumeConcurrentlyContext context) {
            if (delayLevel != null) {
                context.setDelayLevelWhenNextConsume(delayLevel);
            }
            return consume(messages)
                ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        }

        private ConsumeOrderlyStatus consumeOrderly(List<MessageExt> messages, ConsumeOrderlyContext context) {
            context.setSuspendCurrentQueueTimeMillis(ORDERLY_PAUSE_MS);
            return consume(messages)
                ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
        }

        private boolean consume(List<MessageExt> messages) {
            boolean well = true;
            for (MessageExt message : messages) {
                int attempt = attempts.merge(message.getMsgId(), 1, Integer::sum);
                JSONObject description = Messages.describe(message);
                description.put("receivedMs", System.currentTimeMillis());
                description.put("attempt", attempt);
                synchronized (received) {
                    received.add(description);
                }
                well &= attempt > failures;
            }
            if (consumeMs > 0) {
                try {
                    Thread.sleep(consumeMs);
                } catch (InterruptedException stopped) {
                    Thread.currentThread().interrupt();
                }
            }
            return well;
        }

        JSONArray received() {
            synchronized (received) {
                JSONArray taken = new JSONArray();
                taken.addAll(received);
                received.clear();
                return taken;
            }
        }

        JSONArray queues(String topic) {
            return Messages.describeQueues(client.getDefaultMQPushConsumerImpl().getRebalanceImpl()
                .getProcessQueueTable().keySet().stream().filter(queue -> queue.getTopic().equals(topic)).toList());
        }

        Object suspend(boolean suspended) {
            if (suspended) {
                client.suspend();
            } else {
                client.resume();
            }
            return true;
        }

        JSONArray stop() {
            client.shutdown();
            return received();
        }
    }
}
