package interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.parser.Feature;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** What a command is given and what it answers: JSON objects, one per line. */
final class Lines implements AutoCloseable {
    private final List<JSONObject> input = new ArrayList<>();
    private final BufferedWriter output;

    Lines(Path input, Path output) throws IOException {
        for (String line : Files.readAllLines(input)) {
            this.input.add(JSON.parseObject(line, Feature.OrderedField));
        }
        this.output = Files.newBufferedWriter(output);
    }

    List<JSONObject> input() {
        return input;
    }

    /** Writes a line that is in the file when this returns: whoever watches it counts on that. */
    void answer(JSONObject line) throws IOException {
        output.write(JSON.toJSONString(line, SerializerFeature.WriteMapNullValue,
            SerializerFeature.DisableCircularReferenceDetect));
        output.newLine();
        output.flush();
    }

    @Override
    public void close() throws IOException {
        output.close();
    }
}
