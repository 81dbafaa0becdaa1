/**
 * The call that removes a background, in several languages. All derive the Idempotency-Key from the
 * picture's bytes, so that a retry has the same key.
 */

import {
  curlSample,
  fileNameOf,
  formatOf,
  keyPrefix,
  optionsOf,
  type SampledCall,
} from '@matting/proto/contract/curl-sample.ts';
import { fieldKind } from '@matting/proto/contract/finishing/table.ts';

interface Sample {
  readonly name: 'curl, for scripts' | 'TypeScript' | 'Python' | 'PHP' | 'Go' | 'C#' | 'Ruby';
  readonly text: string;
}

export function codeSamples(call: SampledCall): readonly Sample[] {
  return [
    { name: 'curl, for scripts', text: curlSample(call) },
    { name: 'TypeScript', text: typescript(call) },
    { name: 'Python', text: python(call) },
    { name: 'PHP', text: php(call) },
    { name: 'Go', text: go(call) },
    { name: 'C#', text: csharp(call) },
    { name: 'Ruby', text: ruby(call) },
  ];
}

function typescript(call: SampledCall): string {
  const fields = optionsOf(call).map(
    ([name, value]) => `    ${name}: ${scriptValue(name, value)},`,
  );
  const request = fields.length === 0 ? ['  { image },'] : ['  {', '    image,', ...fields, '  },'];
  return [
    "import { createHash } from 'node:crypto';",
    "import { env } from 'node:process';",
    "import { MattingClient } from 'matting-client';",
    "import { readImage, saveImage } from 'matting-client/files';",
    '',
    'const matting = new MattingClient({',
    `  baseUrl: ${JSON.stringify(call.baseUrl)},`,
    '  apiKey: env.MATTING_API_KEY,',
    '});',
    "const image = await readImage('photo.jpg');",
    "const digest = createHash('sha256').update(image).digest('hex');",
    'const { bytes } = await matting.cutOut(',
    ...request,
    `  { idempotencyKey: \`${keyPrefix(call)}-\${digest.slice(0, 32)}\` },`,
    ');',
    `await saveImage('${fileNameOf(call)}', [bytes]);`,
  ].join('\n');
}

function python(call: SampledCall): string {
  const data = optionsOf(call).map(
    ([name, value]) => `        ${JSON.stringify(name)}: ${JSON.stringify(value)},`,
  );
  return [
    'import hashlib, os, sys',
    'import requests',
    '',
    'photo = open("photo.jpg", "rb").read()',
    'digest = hashlib.sha256(photo).hexdigest()[:32]',
    'answer = requests.post(',
    `    ${JSON.stringify(`${call.baseUrl}/v1/matting`)},`,
    '    headers={',
    '        "Authorization": "Bearer " + os.environ["MATTING_API_KEY"],',
    `        "Idempotency-Key": "${keyPrefix(call)}-" + digest,`,
    `        "Accept": "image/${formatOf(call)}",`,
    '    },',
    '    files={"image_file": photo},',
    ...(data.length === 0 ? [] : ['    data={', ...data, '    },']),
    '    timeout=150,',
    ')',
    'if answer.status_code != 200:',
    '    sys.exit(answer.text)',
    `with open("${fileNameOf(call)}", "wb") as cutout:`,
    '    cutout.write(answer.content)',
  ].join('\n');
}

function php(call: SampledCall): string {
  const fields = optionsOf(call).map(
    ([name, value]) => `        ${quoted(name)} => ${quoted(value)},`,
  );
  return [
    '<?php',
    "$digest = substr(hash_file('sha256', 'photo.jpg'), 0, 32);",
    `$call = curl_init(${quoted(`${call.baseUrl}/v1/matting`)});`,
    'curl_setopt_array($call, [',
    '    CURLOPT_HTTPHEADER => [',
    "        'Authorization: Bearer ' . getenv('MATTING_API_KEY'),",
    `        'Idempotency-Key: ${keyPrefix(call)}-' . $digest,`,
    `        'Accept: image/${formatOf(call)}',`,
    '    ],',
    '    CURLOPT_POSTFIELDS => [',
    "        'image_file' => new CURLFile('photo.jpg'),",
    ...fields,
    '    ],',
    '    CURLOPT_RETURNTRANSFER => true,',
    '    CURLOPT_TIMEOUT => 150,',
    ']);',
    '$answer = curl_exec($call);',
    'if (curl_getinfo($call, CURLINFO_RESPONSE_CODE) !== 200) {',
    '    fwrite(STDERR, $answer === false ? curl_error($call) : $answer);',
    '    exit(1);',
    '}',
    `file_put_contents('${fileNameOf(call)}', $answer);`,
  ].join('\n');
}

function ruby(call: SampledCall): string {
  const fields = optionsOf(call).map(([name, value]) => `  [${quoted(name)}, ${quoted(value)}],`);
  return [
    "require 'digest'",
    "require 'net/http'",
    '',
    "photo = File.binread('photo.jpg')",
    `uri = URI(${quoted(`${call.baseUrl}/v1/matting`)})`,
    'request = Net::HTTP::Post.new(uri)',
    "request['Authorization'] = \"Bearer #{ENV.fetch('MATTING_API_KEY')}\"",
    `request['Idempotency-Key'] = "${keyPrefix(call)}-#{Digest::SHA256.hexdigest(photo)[0, 32]}"`,
    `request['Accept'] = 'image/${formatOf(call)}'`,
    'request.set_form([',
    "  ['image_file', photo, { filename: 'photo.jpg' }],",
    ...fields,
    "], 'multipart/form-data')",
    "options = { use_ssl: uri.scheme == 'https', read_timeout: 150 }",
    'answer = Net::HTTP.start(uri.host, uri.port, options) { |http| http.request(request) }',
    "abort answer.body unless answer.code == '200'",
    `File.binwrite('${fileNameOf(call)}', answer.body)`,
  ].join('\n');
}

function go(call: SampledCall): string {
  const prefix = `${keyPrefix(call)}-`;
  const fields = optionsOf(call).map(
    ([name, value]) => `\tform.WriteField(${JSON.stringify(name)}, ${JSON.stringify(value)})`,
  );
  const orFail = ['\tif err != nil {', '\t\tlog.Fatal(err)', '\t}'];
  const packages = ['bytes', 'crypto/sha256', 'fmt', 'io', 'log', 'mime/multipart', 'net/http'];
  return [
    'package main',
    '',
    'import (',
    ...[...packages, 'os', 'time'].map(name => `\t"${name}"`),
    ')',
    '',
    'func main() {',
    '\tphoto, err := os.ReadFile("photo.jpg")',
    ...orFail,
    '\tvar body bytes.Buffer',
    '\tform := multipart.NewWriter(&body)',
    '\tpart, _ := form.CreateFormFile("image_file", "photo.jpg")',
    '\tpart.Write(photo)',
    ...fields,
    '\tform.Close()',
    `\trequest, err := http.NewRequest("POST", ${JSON.stringify(`${call.baseUrl}/v1/matting`)}, &body)`,
    ...orFail,
    `\tkey := fmt.Sprintf("${prefix}%x", sha256.Sum256(photo))[:${prefix.length + 32}]`,
    '\trequest.Header.Set("Authorization", "Bearer "+os.Getenv("MATTING_API_KEY"))',
    '\trequest.Header.Set("Idempotency-Key", key)',
    `\trequest.Header.Set("Accept", "image/${formatOf(call)}")`,
    '\trequest.Header.Set("Content-Type", form.FormDataContentType())',
    '\tclient := http.Client{Timeout: 150 * time.Second}',
    '\tanswer, err := client.Do(request)',
    ...orFail,
    '\tdefer answer.Body.Close()',
    '\tcutout, err := io.ReadAll(answer.Body)',
    ...orFail,
    '\tif answer.StatusCode != 200 {',
    '\t\tlog.Fatal(string(cutout))',
    '\t}',
    `\tif err := os.WriteFile("${fileNameOf(call)}", cutout, 0o644); err != nil {`,
    '\t\tlog.Fatal(err)',
    '\t}',
    '}',
  ].join('\n');
}

function csharp(call: SampledCall): string {
  const fields = optionsOf(call).map(
    ([name, value]) =>
      `    { new StringContent(${JSON.stringify(value)}), ${JSON.stringify(name)} },`,
  );
  const address = JSON.stringify(`${call.baseUrl}/v1/matting`);
  return [
    'using System.Security.Cryptography;',
    '',
    'var photo = await File.ReadAllBytesAsync("photo.jpg");',
    'var digest = Convert.ToHexString(SHA256.HashData(photo))[..32].ToLowerInvariant();',
    'var apiKey = Environment.GetEnvironmentVariable("MATTING_API_KEY");',
    'using var http = new HttpClient { Timeout = TimeSpan.FromSeconds(150) };',
    `using var request = new HttpRequestMessage(HttpMethod.Post, ${address});`,
    'request.Headers.Add("Authorization", "Bearer " + apiKey);',
    `request.Headers.Add("Idempotency-Key", "${keyPrefix(call)}-" + digest);`,
    `request.Headers.Add("Accept", "image/${formatOf(call)}");`,
    'request.Content = new MultipartFormDataContent',
    '{',
    '    { new ByteArrayContent(photo), "image_file", "photo.jpg" },',
    ...fields,
    '};',
    'using var answer = await http.SendAsync(request);',
    'var body = await answer.Content.ReadAsByteArrayAsync();',
    'if ((int)answer.StatusCode != 200)',
    '{',
    '    Console.Error.WriteLine(System.Text.Encoding.UTF8.GetString(body));',
    '    return 1;',
    '}',
    `await File.WriteAllBytesAsync("${fileNameOf(call)}", body);`,
    'return 0;',
  ].join('\n');
}

function quoted(text: string): string {
  return `'${text.replaceAll(/[\\']/g, String.raw`\$&`)}'`;
}

function scriptValue(name: string, value: string): string {
  const kind = fieldKind(name);
  if (kind === 'boolean' && value === 'true') return 'true';
  if (kind === 'number' && /^\d{1,9}(?:\.\d{1,9})?$/.test(value)) return String(Number(value));
  return JSON.stringify(value);
}
