// A submission, its job and an error by the client that openapi-generator made of /v1/openapi.json.
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.UUID;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.MattingApi;
import org.openapitools.client.model.Job;
import org.openapitools.client.model.MattingRequest;
import org.openapitools.client.model.SucceededJob;

public class Calls {
  public static void main(String[] args) throws Exception {
    ApiClient client = new ApiClient().setBasePath(args[0]);
    client.setBearerToken(args[1]);
    client.setReadTimeout(120_000);
    MattingApi api = new MattingApi(client);
    String picture = Base64.getEncoder().encodeToString(Files.readAllBytes(Path.of(args[2])));
    MattingRequest request = new MattingRequest().imageBase64(picture).outputWidth(200);
    Job job = api.submitMatting(newKey(), request).execute();
    SucceededJob done = job.getSucceededJob();
    if (done.getResult().getWidth() != 200) throw new AssertionError(done);
    api.readMattingJob(newKey(), done.getJobId()).execute().getSucceededJob();
    try {
      MattingRequest wrong = new MattingRequest().imageBase64("AAAA");
      api.submitMatting(newKey(), wrong).execute();
      throw new AssertionError("it was taken");
    } catch (ApiException error) {
      String body = error.getResponseBody();
      if (!body.contains("UNSUPPORTED_IMAGE_FORMAT")) throw new AssertionError(body);
    }
  }

  static String newKey() {
    return UUID.randomUUID().toString();
  }
}
