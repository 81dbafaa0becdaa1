/**
 * The line of curl that cuts a picture out, as pages and the first start show it. It names a
 * picture by its bytes: a retry has the same Idempotency-Key, another picture another one.
 */
import { createHash } from 'node:crypto';

export interface SampledCall {
  readonly baseUrl: string;
  /** Set by curl's first line; absent: the reader has set MATTING_API_KEY. */
  readonly apiKey?: string;
  readonly options?: ReadonlyMap<string, string>;
}

export interface CurlCall extends SampledCall {
  /** The path of the picture from where the line runs. The default is `photo.jpg`. */
  readonly photo?: string;
}

/** A picture with other options is another request, and must not meet the key of the first. */
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

/**
 * Makes the shortest call, to begin with. Its Idempotency-Key names one picture, and an error is
 * written in place of the picture.
 */
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

/**
 * Makes a line for any curl and any shell of POSIX, on Linux and macOS. Only a 200 is the picture:
 * the line shows an error or a 202, and never writes it under the picture's name.
 */
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
