import assert from 'node:assert/strict';
import { it } from 'node:test';
import { withheldTeller } from '../../../src/services/alerts/withheld-messages.ts';

it('a message that is withheld is counted each time, and logged the first time of a day', () => {
  const counted: string[] = [];
  const logged: unknown[] = [];
  const log = { warn: (line: unknown) => logged.push(line) };
  const tell = withheldTeller({ messageWithheld: reason => counted.push(reason) }, log);
  tell('one', { reason: 'account', isFirst: true });
  tell('one', { reason: 'account', isFirst: false });
  tell('two', { reason: 'recipient', isFirst: true });
  assert.deepEqual(counted, ['account', 'account', 'recipient']);
  assert.deepEqual(logged, [
    { accountId: 'one', reason: 'account' },
    { accountId: 'two', reason: 'recipient' },
  ]);
});
