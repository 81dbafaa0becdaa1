import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  countsOf,
  type Message,
  RECIPIENT_ACCOUNT_MAILS_MAX,
  RECIPIENT_MAILS_MAX,
  takeMessages,
} from '../../../src/domain/account/message-limits.ts';

const mailTo = (recipient: string): Message => ({ kind: 'mail', recipient });

/** What keeps each of these back, in their order, where nothing was sent before. */
function sending(messages: readonly (readonly [account: string, Message])[], max: number) {
  const counted = messages.map(([account, message]) => countsOf(account, message, max));
  return takeMessages(counted, new Map()).withheldBy.map(count => count?.reason);
}

describe('messages of a day', () => {
  it('are bounded by account, mails and events apart', () => {
    const strangers = ['a@a.test', 'b@a.test', 'c@a.test'].map(mailTo);
    const events: Message[] = [{ kind: 'event' }, { kind: 'event' }, { kind: 'event' }];
    const all = [...strangers, ...events].map(message => ['one', message] as const);
    const sent = undefined;
    const kept = 'account';
    assert.deepEqual(sending(all, 2), [sent, sent, kept, sent, sent, kept]);
  });

  it('reach one address from one account half as often as from all', () => {
    const to = (account: string, count: number) =>
      Array.from({ length: count }, () => [account, mailTo('a@a.test')] as const);
    const one = sending([...to('one', RECIPIENT_MAILS_MAX), ...to('two', 1)], 100);
    assert.equal(
      one.filter(reason => reason === undefined).length,
      RECIPIENT_ACCOUNT_MAILS_MAX + 1,
    );
    assert.equal(one.at(-1), undefined, 'the way of another account is open');
    const many = ['one', 'two', 'three', 'four'].flatMap(account => to(account, 9));
    const sent = sending(many, 100).filter(reason => reason === undefined);
    assert.equal(sent.length, RECIPIENT_MAILS_MAX, 'accounts together have one bound');
  });

  it('count what one person reads as one address', () => {
    const forms = ['Ann@a.test', 'ann@A.TEST', 'ann+1@a.test', 'ANN+x+y@a.test'];
    const names = forms.map(mail => countsOf('one', mailTo(mail), 1).at(-1)?.name);
    assert.equal(new Set(names).size, 1);
    const others = ['+ann@a.test', 'ann@b.test', 'an.n@a.test'];
    const apart = [...others, 'ann@a.test'].map(mail => countsOf('one', mailTo(mail), 1).at(-1));
    assert.equal(new Set(apart.map(count => count?.name)).size, 4);
  });

  it('that are kept back take nothing of another bound', () => {
    const full = Array.from({ length: 3 }, () => ['one', mailTo('a@a.test')] as const);
    assert.deepEqual(sending([...full, ['two', mailTo('a@a.test')]], 1).at(-1), undefined);
    const counted = full.map(([account, message]) => countsOf(account, message, 1));
    const { used } = takeMessages(counted, new Map());
    assert.deepEqual([...used.values()], [1, 1, 1]);
  });
});
