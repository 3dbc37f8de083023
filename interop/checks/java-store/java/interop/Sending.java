package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sends messages to the queues they are meant for, one call after the other. */
final class Sending {
    /** A line {topic, queueId, batch, messages}: a line per call {status, queueOffset, ids}. */
    static void send(Peer peer, Lines lines) throws Exception {
        for (JSONObject wanted : lines.input()) {
            String topic = wanted.getString("topic");
            MessageQueue queue = peer.queue(topic, wanted.getIntValue("queueId"));
            List<Message> messages = new ArrayList<>();
            JSONArray descriptions = wanted.getJSONArray("messages");
            for (int i = 0; i < descriptions.size(); i++) {
                messages.add(message(topic, descriptions.getJSONObject(i)));
            }
            if (wanted.getBooleanValue("batch")) {
                answer(peer.producer.send(messages, queue), messages.size(), lines);
            } else {
                for (Message message : messages) {
                    answer(peer.producer.send(message, queue), 1, lines);
                }
            }
        }
    }

    /** The same, until a call fails because the broker is gone. */
    static void sendUntilItFails(Peer peer, Lines lines) throws Exception {
        try {
            send(peer, lines);
        } catch (Exception brokerIsGone) {
            System.out.println("ended by " + brokerIsGone);
            return;
        }
        throw new IllegalStateException("everything was sent before the broker was gone");
    }

    private static Message message(String topic, JSONObject description) {
        Message message = new Message(topic, Base64.getDecoder().decode(description.getString("body")));
        if (description.getString("tags") != null) {
            message.setTags(description.getString("tags"));
        }
        if (description.getString("keys") != null) {
            message.setKeys(description.getString("keys"));
        }
        JSONObject properties = description.getJSONObject("properties");
        for (String name : properties.keySet()) {
            message.putUserProperty(name, properties.getString(name));
        }
        return message;
    }

    private static void answer(SendResult result, int count, Lines lines) throws Exception {
        JSONObject line = new JSONObject(true);
        line.put("status", result.getSendStatus().name());
        line.put("count", count);
        line.put("queueOffset", result.getQueueOffset());
        line.put("msgId", result.getMsgId());
        line.put("offsetMsgId", result.getOffsetMsgId());
        lines.answer(line);
    }

    private Sending() {
    }
}
