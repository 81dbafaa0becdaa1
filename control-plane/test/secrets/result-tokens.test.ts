/** Tokens of result links: what a row has of them, and who can show the link again. */
import { hash, randomUUID } from 'node:crypto';
import test from 'ava';
import { CallbackSecrets } from '../../src/secrets/callback-secret.ts';
import { ResultTokens } from '../../src/secrets/result-tokens.ts';
import { SecretBox } from '../../src/secrets/secret-box.ts';

const box = (byte: number) => new SecretBox(Buffer.alloc(32, byte));
const OLD = box(1);
const NEW = box(2);
const tokensBy = (own: SecretBox, ...previous: SecretBox[]) =>
  new ResultTokens(new CallbackSecrets(own, previous));

const JOB = randomUUID();

test('is in no row: its hash is, and itself only sealed', t => {
  const tokens = tokensBy(OLD);
  const row = tokens.make(JOB);
  const token = tokens.open(JOB, row);
  t.regex(token, /^[A-Za-z0-9_-]{43}$/);
  t.is(row.token, hash('sha256', token, 'hex'));
  t.false(JSON.stringify(row).includes(token));
  t.true(row.sealedToken.length <= 255, 'it fits its column');
  t.not(tokens.open(JOB, tokens.make(JOB)), token);
});

test('opens for its own job, by a key that is here', t => {
  const row = tokensBy(OLD).make(JOB);
  t.throws(() => tokensBy(OLD).open(randomUUID(), row), { message: /is not here/ });
  t.throws(() => tokensBy(NEW).open(JOB, row), { message: /is not here/ });
});

test('is shown by every replica at every step of a change of the key', t => {
  const [before, both, after] = [tokensBy(OLD), tokensBy(NEW, OLD), tokensBy(NEW)];
  // Those of one step run beside those of the next.
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
