/**
 * The call that cuts a picture out, in the languages that pages show. All three name a picture by
 * its bytes: a retry has the same Idempotency-Key in each, another picture another one.
 */

import { createHash } from 'node:crypto';

export interface SampledCall {
  readonly baseUrl: string;
  /** Set by curl's first line; absent: the reader has set MATTING_API_KEY. */
  readonly apiKey?: string;
  readonly options?: ReadonlyMap<string, string>;
}

interface Sample {
  readonly name: 'curl' | 'TypeScript' | 'Python';
  readonly text: string;
}

export function codeSamples(call: SampledCall): readonly Sample[] {
  return [
    { name: 'curl', text: curlSample(call) },
    { name: 'TypeScript', text: typescript(call) },
    { name: 'Python', text: python(call) },
  ];
}

/** A picture with other options is another request, and must not meet the key of the first. */
function keyPrefix(call: SampledCall): string {
  const options = optionsOf(call).toSorted();
  if (options.length === 0) return 'photo';
  const hash = createHash('sha256').update(JSON.stringify(options)).digest('hex');
  return `photo-${hash.slice(0, 8)}`;
}

function optionsOf({ options = new Map() }: SampledCall): [name: string, value: string][] {
  return [...options];
}

function formatOf({ options }: SampledCall): string {
  const format = options?.get('output_format') ?? 'png';
  return /^[a-z]{3,4}$/.test(format) ? format : 'png';
}

function fileNameOf(call: SampledCall): string {
  const format = formatOf(call);
  return `cutout.${format === 'jpeg' ? 'jpg' : format}`;
}

/**
 * For any curl and any shell of POSIX, on Linux and macOS. Only a 200 is the picture: an error and
 * a 202 are told, and never stand under the picture's name.
 */
export function curlSample(call: SampledCall): string {
  const { baseUrl, apiKey } = call;
  const fields = optionsOf(call).map(
    ([name, value]) => `--form-string ${shell(`${name}=${value}`)}`,
  );
  const file = fileNameOf(call);
  const digest = '{ sha256sum || shasum -a 256; } 2>/dev/null <photo.jpg | cut -c1-32';
  const key = `key=${keyPrefix(call)}-$(${digest})`;
  const lines = [
    `curl -sS ${shell(`${baseUrl}/v1/matting`)}`,
    '-H "Authorization: Bearer $MATTING_API_KEY"',
    '-H "Idempotency-Key: $key"',
    `-H 'Accept: image/${formatOf(call)}'`,
    '-F image_file=@photo.jpg',
    ...fields,
    `-o answer.part -w '%{http_code}' | grep -qx 200 &&`,
    `mv answer.part ${file} || { cat answer.part; rm -f answer.part; false; }`,
  ];
  const set = apiKey === undefined ? '' : `export MATTING_API_KEY=${shell(apiKey)}\n`;
  return `${set}${key}\n${lines.join(' \\\n  ')}`;
}

const NUMBERS = new Set(['size_max_megapixels', 'output_width', 'output_height']);

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

function shell(text: string): string {
  return /^[\w:/.@=%+-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

function scriptValue(name: string, value: string): string {
  if (name === 'crop' && value === 'true') return 'true';
  if (NUMBERS.has(name) && /^\d{1,9}(?:\.\d{1,9})?$/.test(value)) return String(Number(value));
  return JSON.stringify(value);
}
