import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KeyUses } from '../../../src/services/keys/key-uses.ts';
import type { ApiKeyStore } from '../../../src/store/accounts/api-key-store.ts';

const owner = (apiKeyId: string) => ({ apiKeyId, accountId: 'account' });

/** What is written; the next call fails where `broken`. */
function recorder() {
  const written: string[][] = [];
  const state = { broken: false };
  const noteUses: ApiKeyStore['noteUses'] = async uses => {
    if (state.broken) throw new Error('away');
    written.push(uses.map(use => `${use.apiKeyId}${use.byPreviousSecret ? ' old' : ''}`));
    for (const { ageMs } of uses) assert.ok(ageMs >= 0);
  };
  return { written, state, store: { noteUses } };
}

test('a key that is used all the time is written once, until its time is over', async () => {
  const { written, store } = recorder();
  const uses = new KeyUses(store);
  for (let count = 0; count < 100; count += 1) uses.note(owner('a'));
  uses.note({ ...owner('a'), byPreviousSecret: true });
  await uses.write();
  assert.deepEqual(written, [['a', 'a old']]);
  uses.note(owner('a'));
  await uses.write();
  assert.equal(written.length, 1, 'within the minute');
  await uses.write(0);
  assert.deepEqual(written[1], ['a']);
  await uses.write(0);
  assert.equal(written.length, 2, 'nothing new');
  uses.note(owner('a'));
  await uses.stop();
  assert.deepEqual(written[2], ['a'], 'what is left at the end');
});

test('what could not be written is tried again', async () => {
  const { written, state, store } = recorder();
  const uses = new KeyUses(store);
  const failed: unknown[] = [];
  uses.start(error => failed.push(error));
  uses.note(owner('a'));
  state.broken = true;
  await uses.write();
  assert.equal(failed.length, 1);
  state.broken = false;
  await uses.write();
  assert.deepEqual(written, [['a']]);
  await uses.stop();
});

test('no more keys are noted than may be: the oldest go', async () => {
  const { written, store } = recorder();
  const uses = new KeyUses(store, 2);
  for (const id of ['a', 'b', 'c']) uses.note(owner(id));
  await uses.write();
  assert.deepEqual(written, [['b', 'c']]);
});
