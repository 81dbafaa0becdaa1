/** Tokens of result links: what a row has of them, and who can show the link again. */
import assert from 'node:assert/strict';
import { hash, randomUUID } from 'node:crypto';
import { describe, it } from 'node:test';
import { CallbackSecrets } from '../../src/secrets/callback-secret.ts';
import { ResultTokens } from '../../src/secrets/result-tokens.ts';
import { SecretBox } from '../../src/secrets/secret-box.ts';

const box = (byte: number) => new SecretBox(Buffer.alloc(32, byte));
const OLD = box(1);
const NEW = box(2);
const tokensBy = (own: SecretBox, ...previous: SecretBox[]) =>
  new ResultTokens(new CallbackSecrets(own, previous));

const JOB = randomUUID();

describe('the token of a result', () => {
  it('is in no row: its hash is, and itself only sealed', () => {
    const tokens = tokensBy(OLD);
    const row = tokens.make(JOB);
    const token = tokens.open(JOB, row);
    assert.match(token, /^[A-Za-z0-9_-]{43}$/);
    assert.equal(row.token, hash('sha256', token, 'hex'));
    assert.ok(!JSON.stringify(row).includes(token));
    assert.ok(row.sealedToken.length <= 255, 'it fits its column');
    assert.notEqual(tokens.open(JOB, tokens.make(JOB)), token);
  });

  it('opens for its own job, by a key that is here', () => {
    const row = tokensBy(OLD).make(JOB);
    assert.throws(() => tokensBy(OLD).open(randomUUID(), row), /is not here/);
    assert.throws(() => tokensBy(NEW).open(JOB, row), /is not here/);
  });

  it('is shown by every replica at every step of a change of the key', () => {
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
        assert.ok(row.sealedToken.length <= 255);
        const shown = readers.map(reader => reader.open(JOB, row));
        assert.equal(new Set(shown).size, 1);
      }
    }
  });
});
