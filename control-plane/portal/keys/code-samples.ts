/**
 * The call that makes what the playground made, for programs. Values are quoted as each language
 * quotes them, so that any text is one value.
 */

interface SampledCall {
  readonly baseUrl: string;
  /** Fields of the API with a value, in their order. */
  readonly options: ReadonlyMap<string, string>;
}

const NUMBERS = new Set(['size_max_megapixels', 'output_width', 'output_height']);

export function codeSamples(call: SampledCall) {
  return [
    { name: 'curl', text: curl(call) },
    { name: 'TypeScript', text: typescript(call) },
    { name: 'Python', text: python(call) },
  ];
}

function formatOf({ options }: SampledCall): string {
  const format = options.get('output_format') ?? 'png';
  return /^[a-z]{3,4}$/.test(format) ? format : 'png';
}

function fileNameOf(call: SampledCall): string {
  const format = formatOf(call);
  return `cutout.${format === 'jpeg' ? 'jpg' : format}`;
}

function curl(call: SampledCall): string {
  const { baseUrl, options } = call;
  const fields = [...options].map(([name, value]) => `--form-string ${shell(`${name}=${value}`)}`);
  const lines = [
    `curl --fail-with-body ${shell(`${baseUrl}/v1/matting`)}`,
    '-H "Authorization: Bearer $MATTING_API_KEY"',
    "-H 'Idempotency-Key: photo-1'",
    `-H 'Accept: image/${formatOf(call)}'`,
    '-F image_file=@photo.jpg',
    ...fields,
    `-o ${fileNameOf(call)}`,
  ];
  return lines.join(' \\\n  ');
}

function typescript(call: SampledCall): string {
  const { baseUrl, options } = call;
  const fields = [...options].map(([name, value]) => `    ${name}: ${scriptValue(name, value)},`);
  return [
    "import { env } from 'node:process';",
    "import { MattingClient } from 'matting-client';",
    "import { readImage, saveImage } from 'matting-client/files';",
    '',
    'const matting = new MattingClient({',
    `  baseUrl: ${JSON.stringify(baseUrl)},`,
    '  apiKey: env.MATTING_API_KEY,',
    '});',
    'const { bytes } = await matting.cutOut(',
    '  {',
    "    image: await readImage('photo.jpg'),",
    ...fields,
    '  },',
    "  { idempotencyKey: 'photo-1' },",
    ');',
    `await saveImage('${fileNameOf(call)}', [bytes]);`,
  ].join('\n');
}

function python(call: SampledCall): string {
  const { baseUrl, options } = call;
  const data = [...options].map(
    ([name, value]) => `        ${JSON.stringify(name)}: ${JSON.stringify(value)},`,
  );
  return [
    'import os',
    'import requests',
    '',
    'answer = requests.post(',
    `    ${JSON.stringify(`${baseUrl}/v1/matting`)},`,
    '    headers={',
    '        "Authorization": "Bearer " + os.environ["MATTING_API_KEY"],',
    '        "Idempotency-Key": "photo-1",',
    `        "Accept": "image/${formatOf(call)}",`,
    '    },',
    '    files={',
    '        "image_file": open("photo.jpg", "rb"),',
    '    },',
    ...(data.length === 0 ? [] : ['    data={', ...data, '    },']),
    '    timeout=150,',
    ')',
    'answer.raise_for_status()',
    `with open("${fileNameOf(call)}", "wb") as cutout:`,
    '    cutout.write(answer.content)',
  ].join('\n');
}

/** One word of a POSIX shell. */
function shell(text: string): string {
  return /^[\w:/.@=%+-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

function scriptValue(name: string, value: string): string {
  if (name === 'crop' && value === 'true') return 'true';
  if (NUMBERS.has(name) && /^\d{1,9}(?:\.\d{1,9})?$/.test(value)) return String(Number(value));
  return JSON.stringify(value);
}
