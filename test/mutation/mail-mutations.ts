/** Mails and notifications: what waits is sealed, and nobody sends without a bound. */
import { inFile, type Mutation } from './mutation.ts';

const inReplicas = inFile(
  'control-plane/test/services/notification/delivery-replicas.test.ts',
  'several replicas',
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
];
