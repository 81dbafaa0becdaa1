/** Mails and notifications: what waits is sealed, and nobody sends without a bound. */
import { inFile, type Mutation } from './mutation.ts';

const inReplicas = inFile(
  'control-plane/test/services/notification/delivery-replicas.test.ts',
  'several replicas',
);

const inTurns = inFile(
  'control-plane/test/store/alerts/mail-turns.test.ts',
  'turns of mails on sqlite',
);
const inCounts = inFile(
  'control-plane/test/store/alerts/message-counts.test.ts',
  'messages of a day on sqlite',
);
const inMails = inFile(
  'control-plane/test/http/account/mails.test.ts',
  'mails that an account has sent',
);

export const MAIL_MUTATIONS: readonly Mutation[] = [
  {
    name: 'the body of a notification waits unsealed',
    file: 'control-plane/src/compose.ts',
    find: 'secrets.sealText(renderOutboxBody(views, job), notificationBody(job.id))',
    replace: 'renderOutboxBody(views, job)',
    caughtBy: {
      file: 'control-plane/test/http/routes/callbacks.test.ts',
      test: 'a job shows its callback in every state, the notification does not',
    },
  },
  {
    name: 'a body that is not the notification’s own is sent',
    file: 'control-plane/src/services/notification/send-webhooks.ts',
    find: '= secrets.openText(message.body, notificationBody(id));',
    replace: "= secrets.openText(message.body, notificationBody(id)) ?? '';",
    caughtBy: inReplicas('fail a notification whose body is not its own'),
  },
  {
    name: 'an invitation waits unsealed',
    file: 'control-plane/src/services/people/links.ts',
    find: 'const body = seal(',
    replace: 'const body = ((plain: string, _: string) => plain)(',
    caughtBy: inMails('hold no link that who reads the database could use'),
  },
  {
    name: 'a withdrawn invitation is sent',
    file: 'control-plane/src/store/people/link-store.ts',
    find: 'await withdrawMails(tx, ids.toSorted());',
    replace: '',
    caughtBy: inMails(
      'bring no invitation that was withdrawn, not even where an attempt to send it failed',
    ),
  },
  {
    name: 'the first account has every turn',
    file: 'control-plane/src/store/outbox/outbox-due.ts',
    find: 'if (met.length === 0) walk.lastAccount = rows.at(-1)?.account_id ?? walk.lastAccount;',
    replace: '',
    caughtBy: inTurns('go round the accounts, one mail each'),
  },
  {
    name: 'mails behind those that are looked at wait for them',
    file: 'control-plane/src/store/outbox/outbox-due.ts',
    find: 'head.length === HEAD_MAX ? await walk.next(limit, wanted) : []',
    replace: '[] as DueRow[]',
    caughtBy: inTurns('reach everybody past accounts with more mails than are looked at'),
  },
  {
    name: 'an account sends as many mails as it likes',
    file: 'control-plane/src/services/people/links.ts',
    find: '{ accountName, seal, messagesMax }',
    replace: '{ accountName, seal }',
    caughtBy: inMails(
      'are so many a day, and an invitation beyond them is refused before anything is made',
    ),
  },
  {
    name: 'accounts together write to an address as often as they like',
    file: 'control-plane/src/domain/account/message-limits.ts',
    find: 'max: RECIPIENT_MAILS_MAX, reason }',
    replace: 'max: ACCOUNT_MAILS_MAX, reason }',
    caughtBy: inCounts('to one address are bounded over all accounts, and of one account to half'),
  },
  {
    name: 'one account closes an address to the others',
    file: 'control-plane/src/domain/account/message-limits.ts',
    find: 'RECIPIENT_MAILS_MAX / 2',
    replace: 'RECIPIENT_MAILS_MAX',
    caughtBy: inFile(
      'control-plane/test/domain/account/message-limits.test.ts',
      'messages of a day',
    )('reach one address from one account half as often as from all'),
  },
  {
    name: 'an address with another subaddress is another person',
    file: 'control-plane/src/domain/account/message-limits.ts',
    find: "mailKeyOf(mail).replace(/^([^+@]+)\\+[^@]*@/, '$1@')",
    replace: 'mailKeyOf(mail)',
    caughtBy: inCounts('to one address are bounded over all accounts, and of one account to half'),
  },
  {
    name: 'a threshold that is set anew tells without a bound',
    file: 'control-plane/src/store/alerts/alert-store.ts',
    find: 'mails.filter((_, index) => ofMails[index] === undefined)',
    replace: 'mails.filter(() => ofMails.length >= 0)',
    caughtBy: inCounts('tell of a threshold that is set anew no oftener'),
  },
  {
    name: 'an address that is set again is tested again',
    file: 'control-plane/src/store/alerts/message-counts.ts',
    find: "if (recent !== undefined) return 'too-soon';",
    replace: '',
    caughtBy: inCounts('test an address no oftener where it was removed and set again'),
  },
  {
    name: 'people ask a receiver as fast as they like',
    file: 'control-plane/src/store/outbox/outbox-listing.ts',
    find: "outcome === 'retried' && !isDue ? 'too-soon' : outcome",
    replace: 'outcome',
    caughtBy: {
      file: 'control-plane/test/http/account/jobs.test.ts',
      test: 'the pages of jobs show every attempt of a notification, send it again while it is not delivered',
    },
  },
];
