import java.io.File;
import java.nio.file.Files;
import java.util.Base64;
import java.util.List;
import org.apache.http.HttpEntity;
import org.apache.http.client.entity.UrlEncodedFormEntity;
import org.apache.http.client.fluent.Request;
import org.apache.http.entity.mime.MultipartEntityBuilder;
import org.apache.http.message.BasicNameValuePair;

/** The sample of remove.bg for Java, its fields as a form of pairs, and a form of /v1. */
class HttpClient4 {
  public static void main(String[] arguments) throws Exception {
    String url = arguments[0];
    String apiKey = arguments[1];
    File picture = new File(arguments[2]);
    String out = arguments[3];

    Request.Post(url + "/v1.0/removebg")
        .addHeader("X-Api-Key", apiKey)
        .body(
            MultipartEntityBuilder.create()
                .addBinaryBody("image_file", picture)
                .addTextBody("size", "auto")
                .build())
        .execute()
        .saveContent(new File(out + "/form.png"));

    String base64 = Base64.getEncoder().encodeToString(Files.readAllBytes(picture.toPath()));
    HttpEntity pairs =
        new UrlEncodedFormEntity(
            List.of(
                new BasicNameValuePair("image_file_b64", base64),
                new BasicNameValuePair("size", "preview")));
    Request.Post(url + "/v1.0/removebg")
        .addHeader("X-Api-Key", apiKey)
        .body(pairs)
        .execute()
        .saveContent(new File(out + "/pairs.png"));

    Request.Post(url + "/v1/matting")
        .addHeader("Authorization", "Bearer " + apiKey)
        .addHeader("Idempotency-Key", "a form of Apache HttpClient 4")
        .addHeader("Accept", "image/png")
        .body(
            MultipartEntityBuilder.create()
                .addBinaryBody("image_file", picture)
                .addTextBody("crop", "true")
                .build())
        .execute()
        .saveContent(new File(out + "/matting.png"));
  }
}
