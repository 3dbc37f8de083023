package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;

/** DefaultLitePullConsumer. */
final class LitePullConsumers {
    private final Named<DefaultLitePullConsumer> consumers;

    LitePullConsumers(String nameserver) {
        consumers = new Named<>(nameserver);
    }

    Object run(String verb, JSONObject request) throws MQClientException {
        return switch (verb) {
            case "start" -> start(request);
            case "queues" -> Messages.describeQueues(
                consumers.get(request).fetchMessageQueues(request.getString("topic")));
            case "poll" -> poll(request);
            case "seek" -> {
                consumers.get(request).seek(queue(request), request.getLongValue("offset"));
                yield true;
            }
            case "seek to begin" -> {
                consumers.get(request).seekToBegin(queue(request));
                yield true;
            }
            case "seek to end" -> {
                consumers.get(request).seekToEnd(queue(request));
                yield true;
            }
            case "offset for time" -> consumers.get(request).offsetForTimestamp(
                queue(request), request.getLongValue("ms"));
            case "commit" -> {
                consumers.get(request).commitSync();
                yield true;
            }
            case "committed" -> consumers.get(request).committed(queue(request));
            case "stop" -> {
                consumers.remove(request).shutdown();
                yield true;
            }
            default -> throw new IllegalArgumentException(verb);
        };
    }

    private Object start(JSONObject request) throws MQClientException {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(
            request.getString("group"), Named.hook(request));
        consumers.configure(consumer, request);
        consumer.setAutoCommit(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (request.containsKey("topic")) {
            consumer.subscribe(request.getString("topic"), request.getString("expression"));
        }
        consumer.start();
        if (request.containsKey("queues")) {
            consumer.assign(Messages.parseQueues(request.getJSONArray("queues")));
        }
        consumers.put(request, consumer);
        return consumer.buildMQClientId();
    }

    /** Polls until there are `count` messages or the time is over. */
    private JSONArray poll(JSONObject request) {
        DefaultLitePullConsumer consumer = consumers.get(request);
        JSONArray messages = new JSONArray();
        long deadline = System.currentTimeMillis() + request.getLongValue("timeoutMs");
        long left = request.getLongValue("timeoutMs");
        while (left > 0 && messages.size() < request.getIntValue("count")) {
            messages.addAll(Messages.describeAll(consumer.poll(left)));
            left = deadline - System.currentTimeMillis();
        }
        return messages;
    }

    private static MessageQueue queue(JSONObject request) {
        return Messages.parseQueue(request.getJSONObject("queue"));
    }
}
