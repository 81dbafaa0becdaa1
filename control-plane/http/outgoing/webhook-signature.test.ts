/** Against the official package, and the receivers of docs/examples. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import ava from 'ava';
import { Webhook } from 'standardwebhooks';
import {
  isReadableSecret,
  signingKeyOf,
  signMessage,
  wrongWithSignature,
} from './webhook-signature.ts';

const test = ava.serial;

const BODIES = ['{}', '{"a":"é 𝒳 \u2028"}', '', '{"a": 1}\n', 'x'.repeat(100_000)];
const ID = 'msg_6f1d2c1e-8b1a-4d0e-9a57-2f2b6c3d4e5f';
const nowS = Math.floor(Date.now() / 1000);

function verifierOf(secret: string): Webhook {
  return secret.startsWith('whsec_') ? new Webhook(secret) : new Webhook(secret, { format: 'raw' });
}

test('a secret › that the service takes makes the same key in the library, or is refused by both', t => {
  for (const bytes of [16, 23, 24, 25, 26, 32, 64, 65]) {
    const base64 = randomBytes(bytes).toString('base64');
    const forms = [base64, base64.replace(/=+$/, ''), base64.replace(/^./, '-'), ` ${base64}`];
    for (const text of forms.map(form => `whsec_${form}`)) {
      const isTaken = /^whsec_[A-Za-z0-9+/]+=*$/.test(text) && bytes >= 24 && bytes <= 64;
      t.is(isReadableSecret(text), isTaken, text);
      const message = { id: ID, timestampS: nowS, body: Buffer.from('{}') };
      if (isTaken)
        t.notThrows(() => verifierOf(text).verify('{}', signMessage(signingKeyOf(text), message)));
    }
  }
});

for (const [kind, secret] of [
  ['a whsec_ secret of 24 bytes', `whsec_${randomBytes(24).toString('base64')}`],
  ['a whsec_ secret of 64 bytes', `whsec_${randomBytes(64).toString('base64')}`],
  ['a raw secret', 'a raw secret of plain characters ~ !"#'],
] as const) {
  test(`a signature › with ${kind} is what Standard Webhooks makes and takes`, t => {
    const key = signingKeyOf(secret);
    const official = verifierOf(secret);
    for (const body of BODIES) {
      const bytes = Buffer.from(body);
      const headers = { ...signMessage(key, { id: ID, timestampS: nowS, body: bytes }) };
      t.notThrows(() => official.verify(body, headers, { jsonParse: false }));
      t.throws(() => official.verify(`${body} `, headers, { jsonParse: false }));
      const theirs = official.sign(ID, new Date(nowS * 1000), body);
      t.is(headers['webhook-signature'], theirs);
      t.is(wrongWithSignature(key, headers, bytes, nowS), undefined);
    }
  });
}

test('a signature › is not believed when anything of it is another', t => {
  const key = randomBytes(32);
  const body = Buffer.from('{"a":1}');
  const good = { ...signMessage(key, { id: ID, timestampS: nowS, body }) };
  const signature = good['webhook-signature'];
  const wrong = (changes: Record<string, string | undefined>, bytes = body, atS = nowS) =>
    wrongWithSignature(key, { ...good, ...changes }, bytes, atS);
  t.is(wrong({}), undefined);
  t.is(wrong({ 'webhook-signature': `v1,AAAA v1a,xx ${signature}` }), undefined);
  for (const bad of [
    { 'webhook-id': 'msg_other' },
    { 'webhook-id': undefined },
    { 'webhook-timestamp': String(nowS + 1) },
    { 'webhook-timestamp': 'now' },
    { 'webhook-timestamp': '' },
    { 'webhook-signature': signature.slice(3) },
    { 'webhook-signature': `v2,${signature.slice(3)}` },
    { 'webhook-signature': 'v1,' },
    { 'webhook-signature': undefined },
  ]) {
    t.truthy(wrong(bad), JSON.stringify(bad));
  }
  t.truthy(wrong({}, Buffer.from('{"a":2}')));
  t.truthy(wrongWithSignature(randomBytes(32), good, body, nowS));
  t.is(wrong({}, body, nowS + 299), undefined);
  for (const offS of [301, -301]) t.regex(wrong({}, body, nowS + offS)!, /off/);
});

test('a signature › of the documented vector is the documented one', t => {
  const page = readFileSync(new URL('../../../docs/webhooks.md', import.meta.url), 'utf8');
  const cell = (name: string) => {
    const [, value] = new RegExp(`^\\| ${name} \\| \`(.*)\` \\|$`, 'm').exec(page) ?? [];
    assert.ok(value !== undefined, `${name} is documented`);
    return value;
  };
  const message = {
    id: cell('webhook-id'),
    timestampS: Number(cell('webhook-timestamp')),
    body: Buffer.from(cell('body')),
  };
  const signed = (secret: string) => signMessage(signingKeyOf(secret), message);
  t.is(signed(cell('secret'))['webhook-signature'], cell('webhook-signature'));
  const [, raw, signature] = /^\| the same with the secret `(.*)` \| `(.*)` \|$/m.exec(page) ?? [];
  assert.ok(raw !== undefined);
  t.is<string | undefined, string | undefined>(signed(raw)['webhook-signature'], signature);
});

const EXAMPLES = path.resolve(import.meta.dirname, '../../../docs/examples');
const EVENT = '{"type":"matting.job.succeeded","job_id":"j-1","data":{"note":"é 𝒳"}}';

const PADDED = `whsec_${randomBytes(32).toString('base64')}`;
const RAW = 'a raw callback secret, kept as it is';
const noPython = spawnSync('python3', ['--version']).error !== undefined;
/** Python must pad the unpadded Base64 itself. */
const RECEIVERS = [
  ['TypeScript', 'a whsec_', PADDED, [process.execPath, 'receiver.ts'], false],
  ['Python', 'an unpadded whsec_', PADDED.replace(/=+$/, ''), ['python3', 'receiver.py'], noPython],
  ['Python', 'a raw', RAW, ['python3', 'receiver.py'], noPython],
] as const;

for (const [name, kind, secret, [program, script], skip] of RECEIVERS) {
  const title = `the receiver in ${name} › believes what ${kind} secret signed and nothing else`;
  test.skipIf(skip)(title, async t => {
    const env = { PATH: process.env.PATH ?? '', CALLBACK_SECRET: secret, PORT: '0' };
    const args = [path.join(EXAMPLES, script)];
    const child = spawn(program, args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
    t.teardown(async () => {
      child.kill('SIGKILL');
      await once(child, 'exit');
    });
    const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
    const next = async () => String((await lines.next()).value).trim();
    const port = /(\d{2,5})\D*$/.exec(await next())![1];
    const post = async (text: string, headers: Record<string, string>) => {
      const url = `http://127.0.0.1:${port}/`;
      return (await fetch(url, { method: 'POST', headers, body: text })).status;
    };
    const body = Buffer.from(EVENT);
    const signed = (timestampS: number) => ({
      ...signMessage(signingKeyOf(secret), { id: 'msg_j-1', timestampS, body }),
    });
    t.is(await post(EVENT, signed(nowS)), 204);
    t.is(await next(), 'matting.job.succeeded j-1');
    t.is(await post(EVENT, signed(nowS)), 204);
    t.is(await next(), 'matting.job.succeeded j-1 (a repeat)');
    t.is(await post(`${EVENT} `, signed(nowS)), 401);
    t.is(await post(EVENT, signed(nowS - 400)), 401);
    t.is(await post(EVENT, signed(nowS + 400)), 401);
    t.is(await post(EVENT, { ...signed(nowS), 'webhook-id': 'msg_j-2' }), 401);
    t.is(await post(EVENT, {}), 401);
    const both = signed(nowS);
    const signatures = `v1,${randomBytes(32).toString('base64')} ${both['webhook-signature']}`;
    t.is(await post(EVENT, { ...both, 'webhook-signature': signatures }), 204);
  });
}
