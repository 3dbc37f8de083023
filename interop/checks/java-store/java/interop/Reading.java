package interop;

import com.alibaba.fastjson.JSONObject;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.Base64;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Reads whole topics, queue by queue, as a consumer gets them. */
@SuppressWarnings("deprecation")
final class Reading {
    private static final int PULL_COUNT = 32;

    /** A line {topic, expression}: a line {topic, queueId, min, max} per queue, then its messages. */
    static void read(Peer peer, Lines lines) throws Exception {
        for (JSONObject wanted : lines.input()) {
            for (MessageQueue queue : peer.queues(wanted.getString("topic"))) {
                readQueue(peer, queue, wanted.getString("expression"), lines);
            }
        }
    }

    private static void readQueue(Peer peer, MessageQueue queue, String expression, Lines lines) throws Exception {
        long min = peer.consumer.minOffset(queue);
        long max = peer.consumer.maxOffset(queue);
        JSONObject bounds = new JSONObject();
        bounds.put("topic", queue.getTopic());
        bounds.put("queueId", queue.getQueueId());
        bounds.put("min", min);
        bounds.put("max", max);
        JSONObject line = new JSONObject();
        line.put("queue", bounds);
        lines.answer(line);
        for (long offset = min; offset < max; ) {
            PullResult result = peer.consumer.pull(queue, expression, offset, PULL_COUNT);
            if (result.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) {
                    JSONObject found = new JSONObject();
                    found.put("message", describe(message));
                    lines.answer(found);
                }
            } else if (result.getPullStatus() != PullStatus.NO_MATCHED_MSG) {
                throw new IllegalStateException(queue + " at " + offset + ": " + result);
            }
            if (result.getNextBeginOffset() <= offset) {
                throw new IllegalStateException(queue + " goes on from " + offset + " at " + result);
            }
            offset = result.getNextBeginOffset();
        }
    }

    static JSONObject describe(MessageExt message) {
        Map<String, String> properties = new TreeMap<>(message.getProperties() == null
            ? Map.of() : message.getProperties());
        // The client adds these to what it pulled.
        properties.remove(MessageConst.PROPERTY_MIN_OFFSET);
        properties.remove(MessageConst.PROPERTY_MAX_OFFSET);
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        JSONObject line = new JSONObject(true);
        line.put("topic", message.getTopic());
        line.put("queueId", message.getQueueId());
        line.put("queueOffset", message.getQueueOffset());
        line.put("physicalOffset", message.getCommitLogOffset());
        line.put("size", message.getStoreSize());
        line.put("bodyCrc", message.getBodyCRC());
        line.put("flag", message.getFlag());
        line.put("sysFlag", message.getSysFlag());
        line.put("bornMs", message.getBornTimestamp());
        line.put("bornHost", host(message.getBornHost()));
        line.put("storeMs", message.getStoreTimestamp());
        line.put("storeHost", host(message.getStoreHost()));
        line.put("reconsumeTimes", message.getReconsumeTimes());
        line.put("preparedOffset", message.getPreparedTransactionOffset());
        line.put("body", Base64.getEncoder().encodeToString(body));
        line.put("properties", properties);
        line.put("tags", message.getTags());
        line.put("keys", message.getKeys());
        line.put("msgId", message.getMsgId());
        line.put("offsetMsgId", message instanceof MessageClientExt client
            ? client.getOffsetMsgId() : message.getMsgId());
        return line;
    }

    private static String[] host(SocketAddress address) {
        InetSocketAddress internet = (InetSocketAddress) address;
        return new String[] {internet.getAddress().getHostAddress(), Integer.toString(internet.getPort())};
    }

    private Reading() {
    }
}
