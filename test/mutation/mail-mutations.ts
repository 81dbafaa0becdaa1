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
    name: 'a sealed body looks to older control planes like one of theirs',
    file: 'control-plane/src/domain/sealed-body.ts',
    find: "const SEALED = 'body.'",
    replace: "const SEALED = ''",
    caughtBy: {
      file: 'control-plane/test/services/notification/deliver-webhooks.test.ts',
      test: 'a notification goes out at once, signed over the bytes that are sent',
    },
  },
  {
    name: 'a body that is not the notification’s own is sent',
    file: 'control-plane/src/services/notification/webhook-attempt.ts',
    find: 'key === undefined || body === undefined',
    replace: 'key === undefined',
    caughtBy: inReplicas('fail a notification whose body is not its own'),
  },
  {
    name: 'an invitation waits unsealed',
    file: 'control-plane/src/services/people/invitation-letter.ts',
    find: 'seal(`${text}\\n`, id)',
    replace: '`${text}\\n`',
    caughtBy: inMails('hold no link that who reads the database could use'),
  },
  {
    name: 'a withdrawn invitation is sent',
    file: 'control-plane/src/store/people/open-links.ts',
    find: 'await withdrawMails(tx, ids.toSorted());',
    replace: '',
    caughtBy: inMails(
      'bring no invitation that was withdrawn, not even where an attempt to send it failed',
    ),
  },
  {
    name: 'the first account has every turn',
    file: 'control-plane/src/store/alerts/mail-turns.ts',
    find: 'if (all) this.#after = account;',
    replace: '',
    caughtBy: inTurns('go round the accounts, one mail each'),
  },
  {
    name: 'mails behind those that are looked at wait for them',
    file: 'control-plane/src/store/alerts/mail-turns.ts',
    find: 'await this.#walk(limit, full)',
    replace: 'new Map<string, string>()',
    caughtBy: inTurns('reach everybody past accounts with more mails than are looked at'),
  },
];
