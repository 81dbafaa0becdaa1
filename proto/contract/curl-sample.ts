/**
 * The curl command on pages and at the first start. The picture's hash is part of its
 * Idempotency-Key, so a retry repeats the key and another picture has another one.
 */
import { createHash } from 'node:crypto';

export interface SampledCall {
  readonly baseUrl: string;
  /** Absent: the reader has set MATTING_API_KEY. */
  readonly apiKey?: string;
  readonly options?: ReadonlyMap<string, string>;
}

export interface CurlCall extends SampledCall {
  /** Default: `photo.jpg` in the working directory. */
  readonly photo?: string;
}

/** With other options the request is another and needs another key. */
export function keyPrefix(call: SampledCall): string {
  const options = optionsOf(call).toSorted();
  if (options.length === 0) return 'photo';
  const hash = createHash('sha256').update(JSON.stringify(options)).digest('hex');
  return `photo-${hash.slice(0, 8)}`;
}

export function optionsOf({ options = new Map() }: SampledCall): [name: string, value: string][] {
  return [...options];
}

export function formatOf({ options }: SampledCall): string {
  const format = options?.get('output_format') ?? 'png';
  return /^[a-z]{3,4}$/.test(format) ? format : 'png';
}

export function fileNameOf(call: SampledCall): string {
  const format = formatOf(call);
  return `cutout.${format === 'jpeg' ? 'jpg' : format}`;
}

/** The shortest call. Its key is for one picture, and an error is written to the output file. */
export function shortCurl(call: CurlCall): string {
  const { baseUrl, photo = 'photo.jpg' } = call;
  const fields = formStrings(call).map(field => `  ${field}`);
  const lines = [
    `curl ${shell(`${baseUrl}/v1/matting`)} --fail-with-body -o ${fileNameOf(call)}`,
    `  -H "Authorization: Bearer $MATTING_API_KEY" -H "Idempotency-Key: ${keyPrefix(call)}-1"`,
    `  -H "Accept: image/${formatOf(call)}" -F ${shell(`image_file=@${photo}`)}`,
    ...fields,
  ];
  return `${setKey(call)}${lines.join(' \\\n')}`;
}

/** For any curl and POSIX shell. It writes the file only for a 200, and shows an error or a 202. */
export function curlSample(call: CurlCall): string {
  const { baseUrl, photo = 'photo.jpg' } = call;
  const file = fileNameOf(call);
  const digest = '{ sha256sum || shasum -a 256; } 2>/dev/null';
  const key = `key=${keyPrefix(call)}-$(${digest} <${shell(photo)} | cut -c1-32)`;
  const lines = [
    `curl -sS ${shell(`${baseUrl}/v1/matting`)}`,
    '-H "Authorization: Bearer $MATTING_API_KEY"',
    '-H "Idempotency-Key: $key"',
    `-H 'Accept: image/${formatOf(call)}'`,
    `-F ${shell(`image_file=@${photo}`)}`,
    ...formStrings(call),
    `-o answer.part -w '%{http_code}' | grep -qx 200 &&`,
    `mv answer.part ${file} || { cat answer.part; rm -f answer.part; false; }`,
  ];
  return `${setKey(call)}${key}\n${lines.join(' \\\n  ')}`;
}

function setKey({ apiKey }: SampledCall): string {
  return apiKey === undefined ? '' : `export MATTING_API_KEY=${shell(apiKey)}\n`;
}

function formStrings(call: SampledCall): readonly string[] {
  return optionsOf(call).map(([name, value]) => `--form-string ${shell(`${name}=${value}`)}`);
}

function shell(text: string): string {
  return /^[\w:/.@=%+-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}
