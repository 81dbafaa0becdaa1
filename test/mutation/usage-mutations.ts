/** What the telling of low balances must keep to. */
import { inFile, type Mutation } from './mutation.ts';

const ALERTS = 'control-plane/src/store/alerts/alert-store.ts';
const MAILS = 'control-plane/src/store/outbox/outbox-due.ts';
const RULE = 'control-plane/src/domain/account/balance-alerts.ts';

const inAlerts = inFile(
  'control-plane/test/store/alerts/alert-store.test.ts',
  'low balances under two replicas on sqlite',
);
const inMails = inFile(
  'control-plane/test/services/alerts/mail-delivery.test.ts',
  'mails that wait',
);

export const USAGE_MUTATIONS: readonly Mutation[] = [
  {
    name: 'a threshold is told by each replica that sees it',
    file: ALERTS,
    find: "      .where('told_at', 'is', null)\n",
    replace: '',
    caughtBy: inAlerts('tells each threshold once, whoever looks and however often'),
  },
  {
    name: 'a balance that has risen is told',
    file: ALERTS,
    find: "            .where('available', '<=', threshold),\n",
    replace: '',
    caughtBy: inAlerts('is not told of a balance that has risen since it was seen'),
  },
  {
    name: 'credits of failed jobs arm a threshold',
    file: RULE,
    find: "return added || nowMs - told.atMs >= TOLD_AGAIN_MS ? 'arm' : 'none';",
    replace: "return added || nowMs > 0 ? 'arm' : 'none';",
    caughtBy: inAlerts('is not told at every job that fails at the threshold'),
  },
  {
    name: 'a mail that is being sent is due',
    file: MAILS,
    find: '      (row.lease_expires_at === null || row.lease_expires_at <= row.read_at) &&\n',
    replace: '',
    caughtBy: inMails('are sent by another replica where one dies over them, under the same id'),
  },
];
