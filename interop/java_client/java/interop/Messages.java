package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages, queues and results between their Java and their JSON form. */
final class Messages {
    /** The messages {topic, body, tags, keys, delayLevel, properties} of a request. */
    static List<Message> parse(JSONObject request) {
        List<Message> messages = new ArrayList<>();
        JSONArray descriptions = request.getJSONArray("messages");
        for (int i = 0; i < descriptions.size(); i++) {
            messages.add(parseOne(descriptions.getJSONObject(i)));
        }
        return messages;
    }

    private static Message parseOne(JSONObject description) {
        Message message = new Message(
            description.getString("topic"), Base64.getDecoder().decode(description.getString("body")));
        if (description.getString("tags") != null) {
            message.setTags(description.getString("tags"));
        }
        if (description.getString("keys") != null) {
            message.setKeys(description.getString("keys"));
        }
        if (description.containsKey("delayLevel")) {
            message.setDelayTimeLevel(description.getIntValue("delayLevel"));
        }
        JSONObject properties = description.getJSONObject("properties");
        if (properties != null) {
            properties.keySet().forEach(name -> message.putUserProperty(name, properties.getString(name)));
        }
        return message;
    }

    static MessageQueue parseQueue(JSONObject queue) {
        return new MessageQueue(
            queue.getString("topic"), queue.getString("broker"), queue.getIntValue("queueId"));
    }

    static List<MessageQueue> parseQueues(JSONArray queues) {
        List<MessageQueue> parsed = new ArrayList<>();
        for (int i = 0; i < queues.size(); i++) {
            parsed.add(parseQueue(queues.getJSONObject(i)));
        }
        return parsed;
    }

    static JSONObject describe(MessageQueue queue) {
        JSONObject description = new JSONObject(true);
        description.put("topic", queue.getTopic());
        description.put("broker", queue.getBrokerName());
        description.put("queueId", queue.getQueueId());
        return description;
    }

    static JSONArray describeQueues(Collection<MessageQueue> queues) {
        JSONArray descriptions = new JSONArray();
        queues.stream().sorted().forEach(queue -> descriptions.add(describe(queue)));
        return descriptions;
    }

    static JSONObject describe(SendResult result) {
        JSONObject description = new JSONObject(true);
        description.put("status", result.getSendStatus().name());
        description.put("msgId", result.getMsgId());
        description.put("offsetMsgId", result.getOffsetMsgId());
        description.put("queue", describe(result.getMessageQueue()));
        description.put("queueOffset", result.getQueueOffset());
        description.put("regionId", result.getRegionId());
        description.put("traceOn", result.isTraceOn());
        return description;
    }

    static JSONArray describeAll(Collection<? extends MessageExt> messages) {
        JSONArray descriptions = new JSONArray();
        messages.forEach(message -> descriptions.add(describe(message)));
        return descriptions;
    }

    static JSONObject describe(MessageExt message) {
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        JSONObject description = new JSONObject(true);
        description.put("topic", message.getTopic());
        description.put("broker", message.getBrokerName());
        description.put("queueId", message.getQueueId());
        description.put("queueOffset", message.getQueueOffset());
        description.put("physicalOffset", message.getCommitLogOffset());
        description.put("sysFlag", message.getSysFlag());
        description.put("bornMs", message.getBornTimestamp());
        description.put("bornHost", host(message.getBornHost()));
        description.put("storeMs", message.getStoreTimestamp());
        description.put("storeHost", host(message.getStoreHost()));
        description.put("reconsumeTimes", message.getReconsumeTimes());
        description.put("body", Base64.getEncoder().encodeToString(body));
        description.put("properties", properties);
        description.put("tags", message.getTags());
        description.put("keys", message.getKeys());
        description.put("msgId", message.getMsgId());
        description.put("offsetMsgId", message instanceof MessageClientExt client
            ? client.getOffsetMsgId() : message.getMsgId());
        return description;
    }

    private static String host(SocketAddress address) {
        InetSocketAddress internet = (InetSocketAddress) address;
        return internet.getAddress().getHostAddress() + ":" + internet.getPort();
    }

    private Messages() {
    }
}
