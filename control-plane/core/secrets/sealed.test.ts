import assert from 'node:assert/strict';
import { hash, randomBytes, randomUUID } from 'node:crypto';
import { isReadableSecret, signingKeyOf } from '@matting/http/outgoing/webhook-signature.ts';
import test from 'ava';
import { ResultTokens } from '../results/result-tokens.ts';
import { CallbackSecrets, mailBody, notificationBody, SecretBox } from './secret-box.ts';

const prefixed = (bytes: number) => `whsec_${randomBytes(bytes).toString('base64')}`;

test('a secret › a secret opens under no other key, for no other job, and not when altered', t => {
  const box = new SecretBox(randomBytes(32));
  const secrets = new CallbackSecrets(box);
  const jobId = randomUUID();
  const sealed = secrets.seal(jobId, 's'.repeat(24));
  const { secret, secretKeyId } = sealed;
  assert.ok(secret !== null);
  t.is(secrets.open(randomUUID(), sealed), undefined);
  t.is(secrets.open(jobId, { secret, secretKeyId: 'another' }), undefined);
  t.is(secrets.open(jobId, { secret: null, secretKeyId: null }), undefined);
  const others = new CallbackSecrets(new SecretBox(randomBytes(32)));
  t.is(others.open(jobId, sealed), undefined);
  const otherBox = new SecretBox(randomBytes(32));
  t.is(new CallbackSecrets(otherBox).open(jobId, { ...sealed }), undefined);
  t.not(otherBox.keyId, box.keyId);
  for (let at = 0; at < secret.length; at += 1) {
    const altered: Buffer = Buffer.from(secret);
    altered.writeUInt8(altered.readUInt8(at) ^ 1, at);
    t.is(secrets.open(jobId, { secret: altered, secretKeyId }), undefined, `byte ${at}`);
  }
  for (const length of [0, 11, 12, 27, 28, secret.length - 1]) {
    t.is(secrets.open(jobId, { secret: secret.slice(0, length), secretKeyId }), undefined);
  }
});

test('a secret › what is stored shows nothing of the secret, and is never the same twice', t => {
  const secrets = new CallbackSecrets(new SecretBox(randomBytes(32)));
  const text = 'a secret of twenty-nine chars';
  const jobId = randomUUID();
  const seal = () => Buffer.from(secrets.seal(jobId, text).secret ?? '');
  const [stored, again] = [seal(), seal()];
  t.false(stored.equals(again));
  for (const bytes of [stored, again]) t.false(bytes.includes('secret'));
  t.true(stored.length <= 1024, 'the column holds 1 KB');
});

test('a secret › a text opens again under either key of a change, for its row alone', t => {
  const [old, next] = [new SecretBox(randomBytes(32)), new SecretBox(randomBytes(32))];
  const text = 'https://matting.example/account/invitations/tökén';
  const sealed = new CallbackSecrets(old).sealText(text, mailBody('1'));
  const both = new CallbackSecrets(next, [old]);
  t.is(both.openText(sealed, mailBody('1')), text);
  t.is(both.openText(both.sealText(text, mailBody('1')), mailBody('1')), text);
  t.is(both.openText(sealed, mailBody('2')), undefined);
  t.is(both.openText(sealed, notificationBody('1')), undefined);
  t.is(new CallbackSecrets(next).openText(sealed, mailBody('1')), undefined);
  for (const wrong of ['', '.', text, sealed.slice(0, -8)]) {
    t.is(both.openText(wrong, mailBody('1')), undefined, wrong);
  }
});

test('a secret › Base64 behind whsec_ is decoded where it makes 24 to 64 bytes', t => {
  for (const bytes of [24, 25, 26, 32, 63, 64]) {
    const text = prefixed(bytes);
    const key = Buffer.from(text.slice(6), 'base64');
    t.deepEqual(signingKeyOf(text), key);
    t.deepEqual(signingKeyOf(text.replace(/=+$/, '')), key, 'padding is optional');
  }
});

test('a secret › any other text is used as it is', t => {
  const base64 = randomBytes(32).toString('base64');
  for (const text of ['s'.repeat(24), base64, `WHSEC_${base64}`, ` whsec_${base64}`]) {
    t.deepEqual(signingKeyOf(text), Buffer.from(text), text);
  }
});

test('a secret › that begins with whsec_ and cannot be decoded is not taken for its own text', t => {
  const base64 = randomBytes(32).toString('base64');
  for (const text of [
    prefixed(18),
    prefixed(23),
    prefixed(65),
    `whsec_${base64} `,
    `whsec_ ${base64}`,
    `whsec_${base64.slice(0, 42)}-_`,
    `whsec_${base64}=`,
    `whsec_${'A'.repeat(33)}`,
    `whsec_${'='.repeat(24)}`,
  ]) {
    t.false(isReadableSecret(text), text);
    t.throws(() => signingKeyOf(text), undefined, text);
  }
});

test('a secret › what was sealed opens to the signing key', t => {
  const secrets = new CallbackSecrets(new SecretBox(randomBytes(32)));
  for (const text of ['s'.repeat(128), prefixed(64)]) {
    const jobId = randomUUID();
    t.deepEqual(secrets.open(jobId, secrets.seal(jobId, text)), signingKeyOf(text));
  }
});

const box = (byte: number) => new SecretBox(Buffer.alloc(32, byte));
const OLD = box(1);
const NEW = box(2);
const tokensBy = (own: SecretBox, ...previous: SecretBox[]) =>
  new ResultTokens(new CallbackSecrets(own, previous));

const JOB = randomUUID();

test('the token of a result › is in no row: its hash is, and itself only sealed', t => {
  const tokens = tokensBy(OLD);
  const row = tokens.make(JOB);
  const token = tokens.open(JOB, row);
  t.regex(token, /^[A-Za-z0-9_-]{43}$/);
  t.is(row.token, hash('sha256', token, 'hex'));
  t.false(JSON.stringify(row).includes(token));
  t.true(row.sealedToken.length <= 255, 'it fits its column');
  t.not(tokens.open(JOB, tokens.make(JOB)), token);
});

test('the token of a result › opens for its own job, by a key that is here', t => {
  const row = tokensBy(OLD).make(JOB);
  t.throws(() => tokensBy(OLD).open(randomUUID(), row), { message: /is not here/ });
  t.throws(() => tokensBy(NEW).open(JOB, row), { message: /is not here/ });
});

test('the token of a result › is shown by every replica at every step of a change of the key', t => {
  const [before, both, after] = [tokensBy(OLD), tokensBy(NEW, OLD), tokensBy(NEW)];
  // Replicas of one step run together with those of the next.
  for (const [makers, readers] of [
    [
      [before, both],
      [before, both],
    ],
    [
      [both, after],
      [both, after],
    ],
  ] as const) {
    for (const maker of makers) {
      const row = maker.make(JOB);
      t.true(row.sealedToken.length <= 255);
      const shown = readers.map(reader => reader.open(JOB, row));
      t.is(new Set(shown).size, 1);
    }
  }
});
