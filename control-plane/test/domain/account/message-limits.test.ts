import test from 'ava';
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

test('are bounded by account, mails and events apart', t => {
  const strangers = ['a@a.test', 'b@a.test', 'c@a.test'].map(mailTo);
  const events: Message[] = [{ kind: 'event' }, { kind: 'event' }, { kind: 'event' }];
  const all = [...strangers, ...events].map(message => ['one', message] as const);
  const sent = undefined;
  const kept = 'account';
  t.deepEqual(sending(all, 2), [sent, sent, kept, sent, sent, kept]);
});

test('reach one address from one account half as often as from all', t => {
  const to = (account: string, count: number) =>
    Array.from({ length: count }, () => [account, mailTo('a@a.test')] as const);
  const one = sending([...to('one', RECIPIENT_MAILS_MAX), ...to('two', 1)], 100);
  t.is(one.filter(reason => reason === undefined).length, RECIPIENT_ACCOUNT_MAILS_MAX + 1);
  t.is(one.at(-1), undefined, 'the way of another account is open');
  const many = ['one', 'two', 'three', 'four'].flatMap(account => to(account, 9));
  const sent = sending(many, 100).filter(reason => reason === undefined);
  t.is(sent.length, RECIPIENT_MAILS_MAX, 'accounts together have one bound');
});

test('count what one person reads as one address', t => {
  const forms = ['Ann@a.test', 'ann@A.TEST', 'ann+1@a.test', 'ANN+x+y@a.test'];
  const names = forms.map(mail => countsOf('one', mailTo(mail), 1).at(-1)?.name);
  t.is(new Set(names).size, 1);
  const others = ['+ann@a.test', 'ann@b.test', 'an.n@a.test'];
  const apart = [...others, 'ann@a.test'].map(mail => countsOf('one', mailTo(mail), 1).at(-1));
  t.is(new Set(apart.map(count => count?.name)).size, 4);
});

test('that are kept back take nothing of another bound', t => {
  const full = Array.from({ length: 3 }, () => ['one', mailTo('a@a.test')] as const);
  t.deepEqual(sending([...full, ['two', mailTo('a@a.test')]], 1).at(-1), undefined);
  const counted = full.map(([account, message]) => countsOf(account, message, 1));
  const { used } = takeMessages(counted, new Map());
  t.deepEqual([...used.values()], [1, 1, 1]);
});
