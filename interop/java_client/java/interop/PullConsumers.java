package interop;

import com.alibaba.fastjson.JSONObject;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageQueue;

/** DefaultMQPullConsumer. */
@SuppressWarnings("deprecation")
final class PullConsumers {
    private final Named<DefaultMQPullConsumer> consumers;

    PullConsumers(String nameserver) {
        consumers = new Named<>(nameserver);
    }

    Object run(String verb, JSONObject request) throws Exception {
        return switch (verb) {
            case "start" -> start(request);
            case "queues" -> Messages.describeQueues(
                consumers.get(request).fetchSubscribeMessageQueues(request.getString("topic")));
            case "pull" -> describe(consumers.get(request).pull(queue(request), request.getString("expression"),
                request.getLongValue("offset"), request.getIntValue("max")));
            case "pull or wait" -> describe(consumers.get(request).pullBlockIfNotFound(queue(request),
                request.getString("expression"), request.getLongValue("offset"), request.getIntValue("max")));
            case "commit" -> commit(request);
            case "committed" -> consumers.get(request).fetchConsumeOffset(queue(request), true);
            case "stop" -> stop(request);
            default -> throw new IllegalArgumentException(verb);
        };
    }

    private Object start(JSONObject request) throws MQClientException {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(
            request.getString("group"), Named.hook(request));
        consumers.configure(consumer, request);
        if (request.containsKey("waitMs")) {
            consumer.setBrokerSuspendMaxTimeMillis(request.getLongValue("waitMs"));
        }
        consumer.start();
        consumers.put(request, consumer);
        return consumer.buildMQClientId();
    }

    /** Has the broker know the offset, which the client alone would tell it some seconds later. */
    private Object commit(JSONObject request) throws MQClientException {
        DefaultMQPullConsumer consumer = consumers.get(request);
        consumer.updateConsumeOffset(queue(request), request.getLongValue("offset"));
        consumer.getDefaultMQPullConsumerImpl().getOffsetStore().persistAll(Set.of(queue(request)));
        return true;
    }

    private Object stop(JSONObject request) {
        consumers.remove(request).shutdown();
        return true;
    }

    private static JSONObject describe(PullResult result) {
        JSONObject description = new JSONObject(true);
        description.put("status", result.getPullStatus().name());
        description.put("nextOffset", result.getNextBeginOffset());
        description.put("minOffset", result.getMinOffset());
        description.put("maxOffset", result.getMaxOffset());
        description.put("messages", Messages.describeAll(
            result.getMsgFoundList() == null ? List.of() : result.getMsgFoundList()));
        return description;
    }

    private static MessageQueue queue(JSONObject request) {
        return Messages.parseQueue(request.getJSONObject("queue"));
    }
}
