package interop;

import com.alibaba.fastjson.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** The stock mqadmin, many commands in one process: a Java start for each would take longer than they do. */
final class AdminTool extends MQAdminStartup {
    /** Runs {arguments}; what it printed is {output, errors}. */
    static JSONObject run(JSONObject request) {
        // Commands keep what they have opened; a process of its own would begin with new ones.
        subCommandList.clear();
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        PrintStream usualOutput = System.out;
        PrintStream usualErrors = System.err;
        System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        try {
            main0(request.getJSONArray("arguments").toArray(new String[0]), null);
        } finally {
            System.out.flush();
            System.err.flush();
            System.setOut(usualOutput);
            System.setErr(usualErrors);
        }
        JSONObject printed = new JSONObject(true);
        printed.put("output", output.toString(StandardCharsets.UTF_8));
        printed.put("errors", errors.toString(StandardCharsets.UTF_8));
        return printed;
    }

    private AdminTool() {
    }
}
