/**
 * Tests what callers of the other interfaces get wrong first: programs for Photoroom and rembg,
 * agents. It asserts what to send, as mistakes.test.ts does.
 * Needs: mcp, photoroom, portal, rembg.
 */
import assert from 'node:assert/strict';
import ava from 'ava';
import { formDataOf, pngHeader } from '../../control-plane/core/test/support/test-app.ts';
import { useTestApp } from '../../control-plane/test/app.ts';

const test = ava.serial;

let base: string;
const on = { rembg: { standInKeyId: undefined }, photoroom: {} };
const options = { syncWaitMs: 200, modelsOffered: ['standard', 'u2netp'], settings: on };
const app = useTestApp(test, options, async () => {
  base = `http://127.0.0.1:${await app.listen()}`;
});

const PNG = pngHeader(4, 3);
const BASE64 = PNG.toString('base64');
const PDF = Buffer.from('%PDF-1.7\n');
const PHOTOROOM = '/compat/photoroom/v1/segment';
const REMBG = '/compat/rembg/api/remove';
const MCP = '/mcp';

interface Sent {
  readonly path: string;
  readonly method?: string;
  readonly form?: Readonly<Record<string, string | Buffer>>;
  readonly body?: string | Buffer;
  /** Undefined: the request goes without it. */
  readonly headers?: Readonly<Record<string, string | undefined>>;
}

/** All that an answer says, whichever form its errors have, and Allow. */
async function answerTo({ path, method, form, body, headers }: Sent): Promise<string> {
  const all = Object.entries({ 'x-api-key': app.token, ...headers });
  const answer = await fetch(`${base}${path}`, {
    method: method ?? (form === undefined && body === undefined ? 'GET' : 'POST'),
    headers: all.filter((pair): pair is [string, string] => pair[1] !== undefined),
    ...(form ? { body: formDataOf(form) } : body === undefined ? {} : { body }),
  });
  const said = await answer.text();
  assert.ok(answer.status >= 400 || /"isError":true|"error":\{/.test(said), said);
  return `${said}\n${answer.headers.get('allow')}`;
}

const photoroom = (form: Sent['form'], more: Partial<Sent> = {}) => ({
  path: PHOTOROOM,
  ...(form && { form }),
  ...more,
});
const rembg = (form: Sent['form'], more: Partial<Sent> = {}) => ({
  path: REMBG,
  ...(form && { form }),
  ...more,
});

const AGENT = {
  accept: 'application/json, text/event-stream',
  'content-type': 'application/json',
};
function tool(name: string, given: object, headers: Sent['headers'] = {}): Sent {
  const params = { name, arguments: given };
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params });
  return { path: MCP, body, headers: { ...AGENT, ...headers } };
}
const remove = (given: object) => tool('remove_background', given);

const MISTAKES: Readonly<Record<string, readonly [sent: Sent, says: string | RegExp]>> = {
  'Photoroom: no key': [
    photoroom({ image_file: PNG }, { headers: { 'x-api-key': undefined } }),
    'X-Api-Key',
  ],
  'Photoroom: its own key': [
    photoroom({ image_file: PNG }, { headers: { 'x-api-key': 'sk_pr_1' } }),
    'mk_',
  ],
  'Photoroom: no picture': [photoroom({ size: 'full' }), 'image_file'],
  'Photoroom: another name of the file': [photoroom({ image: PNG }), 'image_file'],
  'Photoroom: a path as the file': [photoroom({ image_file: 'a.jpg' }), /plain text.*JPEG, PNG/],
  'Photoroom: an address as Base64': [
    photoroom({ image_file_b64: 'https://a.example/a.jpg' }),
    'image_file_b64',
  ],
  'Photoroom: two pictures': [
    photoroom({ image_file: PNG, image_file_b64: BASE64 }),
    /image_file.*image_file_b64/,
  ],
  'Photoroom: a PDF': [photoroom({ image_file: PDF }), /PDF document.*JPEG, PNG/],
  'Photoroom: a picture that is too wide': [
    photoroom({ image_file: pngHeader(10_001, 9) }),
    '10000',
  ],
  'Photoroom: a picture that is too large': [
    photoroom({ image_file: Buffer.alloc(52_428_801) }),
    '50 MiB',
  ],
  'Photoroom: a format': [photoroom({ image_file: PNG, format: 'gif' }), 'webp'],
  'Photoroom: a size': [photoroom({ image_file: PNG, size: '4k' }), 'preview'],
  'Photoroom: a colour': [photoroom({ image_file: PNG, bg_color: 'whit' }), 'hexadecimal'],
  'Photoroom: a switch': [photoroom({ image_file: PNG, crop: 'maybe' }), 'true'],
  'Photoroom: channels': [photoroom({ image_file: PNG, channels: 'mask' }), 'alpha'],
  'Photoroom: a mask as JPEG': [
    photoroom({ image_file: PNG, channels: 'alpha', format: 'jpg' }),
    'png',
  ],
  'Photoroom: the picture as the body': [
    photoroom(undefined, { body: PNG, headers: { 'content-type': 'image/png' } }),
    'multipart/form-data',
  ],
  'Photoroom: GET': [photoroom(undefined), 'POST'],
  'Photoroom: the path alone': [{ path: '/v1/segment', form: { image_file: PNG } }, PHOTOROOM],
  // rembg.
  'rembg: no key': [rembg({ file: PNG }, { headers: { 'x-api-key': undefined } }), 'X-Api-Key'],
  'rembg: a key of another service': [
    rembg({ file: PNG }, { headers: { 'x-api-key': 'sk_1' } }),
    'mk_',
  ],
  'rembg: no picture': [rembg({ om: 'true' }), '"file"'],
  'rembg: another name of the file': [rembg({ image: PNG }), '"file"'],
  'rembg: no address': [rembg(undefined), '"url"'],
  'rembg: an address in a form': [rembg({ url: 'https://a.example/a.jpg' }), '"file"'],
  'rembg: a path as an address': [
    rembg(undefined, { path: `${REMBG}?url=photo.jpg` }),
    'file of a POST',
  ],
  'rembg: this machine as an address': [
    rembg(undefined, { path: `${REMBG}?url=http://localhost:3000/a.jpg` }),
    'file of a POST',
  ],
  'rembg: a PDF': [rembg({ file: PDF }), /PDF document.*JPEG, PNG/],
  'rembg: a model that is not offered': [rembg({ file: PNG, model: 'silueta' }), 'u2netp'],
  'rembg: a colour': [rembg({ file: PNG, bgc: '#fff' }), 'r,g,b,a'],
  'rembg: a switch': [rembg({ file: PNG, om: 'maybe' }), 'true'],
  'rembg: a threshold': [rembg({ file: PNG, af: '300' }), '255'],
  'rembg: PUT': [rembg(undefined, { method: 'PUT', body: PNG }), 'GET, POST'],
  'rembg: the picture as the body': [
    rembg(undefined, { body: PNG, headers: { 'content-type': 'image/png' } }),
    'multipart/form-data',
  ],
  'rembg: the path alone': [{ path: '/api/remove', form: { file: PNG } }, REMBG],
  'rembg: a misspelt path': [{ path: '/compat/rembg/api/remov', form: { file: PNG } }, REMBG],
  // Agents.
  'an agent: no key': [tool('get_account', {}, { 'x-api-key': undefined }), 'Bearer'],
  'an agent: a wrong key': [tool('get_account', {}, { 'x-api-key': 'sk_1' }), 'mk_'],
  'an agent: a tool of nobody': [tool('remove_bg', {}), 'remove_background'],
  'an agent: no picture': [remove({}), /image_url.*image_base64/],
  'an agent: two pictures': [
    remove({ image_url: 'https://a.example/', image_base64: BASE64 }),
    /image_url.*image_base64/,
  ],
  'an agent: url': [remove({ url: 'https://a.example/a.jpg' }), 'image_url'],
  'an agent: outputFormat': [
    remove({ image_base64: BASE64, outputFormat: 'webp' }),
    /did you mean output_format\?/i,
  ],
  'an agent: idempotencyKey': [
    remove({ image_base64: BASE64, idempotencyKey: 'x' }),
    /did you mean idempotency_key\?/i,
  ],
  'an agent: a long key': [
    remove({ image_base64: BASE64, idempotency_key: 'k'.repeat(129) }),
    /idempotency_key of 1 to 128/,
  ],
  'an agent: a path as an address': [remove({ image_url: '/home/a.jpg' }), 'create_upload'],
  'an agent: this machine as an address': [
    remove({ image_url: 'http://localhost:3000/a.jpg' }),
    'create_upload',
  ],
  'an agent: an address as Base64': [remove({ image_base64: 'https://a.example/' }), 'image_url'],
  'an agent: a PDF': [remove({ image_base64: PDF.toString('base64') }), /PDF document.*JPEG, PNG/],
  'an agent: a format': [remove({ image_base64: BASE64, output_format: 'gif' }), 'webp'],
  'an agent: a size in words': [
    remove({ image_base64: BASE64, output_width: '100px' }),
    'whole number',
  ],
  'an agent: a model that is not offered': [
    remove({ image_base64: BASE64, model: 'silueta' }),
    'u2netp',
  ],
  'an agent: a job that is none': [tool('get_job', { job_id: '42' }), 'job_id'],
  'an agent: no job': [tool('get_job', { id: '42' }), 'job_id'],
  'an agent: a batch': [{ path: MCP, body: '[]', headers: AGENT }, 'one message'],
  'an agent: a text': [
    { path: MCP, body: 'x', headers: { ...AGENT, 'content-type': 'text/plain' } },
    'application/json',
  ],
  'an agent: pages alone': [tool('get_account', {}, { accept: 'text/html' }), 'application/json'],
  'an agent: a stream': [{ path: MCP }, 'POST'],
  'an agent: a slash too many': [{ ...tool('get_account', {}), path: '/mcp/' }, 'mean /mcp?'],
};

for (const [mistake, [sent, says]] of Object.entries(MISTAKES)) {
  test(mistake, async t => {
    const answer = await answerTo(sent);
    t.true(typeof says === 'string' ? answer.includes(says) : says.test(answer), answer);
  });
}
