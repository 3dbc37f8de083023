package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.List;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.ResponseCode;

/** Looks for single messages: by key, by id and by time. */
@SuppressWarnings("deprecation")
final class Asking {
    private static final long WAIT_INTERVAL_MS = 50;

    /** A line {kind, ...}: a line {messages} or, for a time, {offset}. */
    static void ask(Peer peer, Lines lines) throws Exception {
        for (JSONObject question : lines.input()) {
            JSONObject answer = new JSONObject(true);
            if (question.getString("kind").equals("time")) {
                MessageQueue queue = peer.queue(question.getString("topic"), question.getIntValue("queueId"));
                answer.put("offset", peer.consumer.searchOffset(queue, question.getLongValue("ms")));
            } else {
                JSONArray found = new JSONArray();
                find(peer, question).forEach(message -> found.add(Reading.describe(message)));
                answer.put("messages", found);
            }
            lines.answer(answer);
        }
    }

    private static List<MessageExt> find(Peer peer, JSONObject question) throws Exception {
        try {
            return switch (question.getString("kind")) {
                case "key" -> peer.consumer.queryMessage(
                    question.getString("topic"),
                    question.getString("key"),
                    question.getIntValue("max"),
                    question.getLongValue("begin"),
                    question.getLongValue("end")).getMessageList();
                // The public call takes a unique key for an address first, and dials it.
                case "unique" -> List.of(peer.admin().queryMessageByUniqKey(
                    question.getString("topic"), question.getString("key")));
                case "id" -> List.of(peer.consumer.viewMessage(question.getString("id")));
                default -> throw new IllegalArgumentException(question.toString());
            };
        } catch (MQClientException failure) {
            if (failure.getResponseCode() != ResponseCode.NO_MESSAGE) {
                throw failure;
            }
            return List.of();
        }
    }

    /** A line {topic, queueId, max, timeoutMs}: returns when the queue has that many messages. */
    static void await(Peer peer, Lines lines) throws Exception {
        for (JSONObject wanted : lines.input()) {
            MessageQueue queue = peer.queue(wanted.getString("topic"), wanted.getIntValue("queueId"));
            long deadline = System.currentTimeMillis() + wanted.getLongValue("timeoutMs");
            while (peer.consumer.maxOffset(queue) < wanted.getLongValue("max")) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException(queue + " did not come to " + wanted);
                }
                Thread.sleep(WAIT_INTERVAL_MS);
            }
        }
    }

    private Asking() {
    }
}
