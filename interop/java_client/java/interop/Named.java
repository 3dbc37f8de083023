package interop;

import com.alibaba.fastjson.JSONObject;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.remoting.RPCHook;

/** Clients of one kind, by the names they were given when they were started. */
final class Named<T> {
    private final String nameserver;
    private final Map<String, T> clients = new HashMap<>();

    Named(String nameserver) {
        this.nameserver = nameserver;
    }

    T get(JSONObject request) {
        T client = clients.get(request.getString("name"));
        if (client == null) {
            throw new IllegalArgumentException("no client " + request.getString("name"));
        }
        return client;
    }

    void put(JSONObject request, T client) {
        clients.put(request.getString("name"), client);
    }

    T remove(JSONObject request) {
        T client = get(request);
        clients.remove(request.getString("name"));
        return client;
    }

    /** What signs the requests of a client that was given an {accessKey, secretKey}, or null. */
    static RPCHook hook(JSONObject request) {
        String accessKey = request.getString("accessKey");
        return accessKey == null ? null
            : new AclClientRPCHook(new SessionCredentials(accessKey, request.getString("secretKey")));
    }

    /** What all kinds have in common: an instance of their own, and how often they look around. */
    void configure(ClientConfig client, JSONObject request) {
        client.setNamesrvAddr(nameserver);
        client.setInstanceName(request.getString("name"));
        if (request.containsKey("routePollMs")) {
            client.setPollNameServerInterval(request.getIntValue("routePollMs"));
        }
        if (request.containsKey("vip")) {
            client.setVipChannelEnabled(request.getBooleanValue("vip"));
        }
    }
}
