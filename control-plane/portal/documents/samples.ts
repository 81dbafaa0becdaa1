/**
 * The call that cuts a picture out, in the languages that pages show. All three name a picture by
 * its bytes: a retry has the same Idempotency-Key in each, another picture another one.
 */

import {
  curlSample,
  fileNameOf,
  formatOf,
  keyPrefix,
  optionsOf,
  type SampledCall,
} from '@matting/proto/contract/curl-sample.ts';
import { fieldKind } from '@matting/proto/contract/finishing/fields.ts';

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

function scriptValue(name: string, value: string): string {
  const kind = fieldKind(name);
  if (kind === 'boolean' && value === 'true') return 'true';
  if (kind === 'number' && /^\d{1,9}(?:\.\d{1,9})?$/.test(value)) return String(Number(value));
  return JSON.stringify(value);
}
