/** What the telling of low balances must keep to. */
import { mutationsOf } from './mutation.ts';

export const USAGE_MUTATIONS = mutationsOf`
file control-plane/portal/alerts/alert-store.ts
tests control-plane/portal/alerts/alerts-and-mails.test.ts: low balances under two replicas on sqlite
a threshold is told by each replica that sees it
  - .where('told_at', 'is', null)
  = tells each threshold once, whoever looks and however often
a balance that has risen is told
  - .where('available', '<=', threshold),
  = is not told of a balance that has risen since it was seen

file control-plane/portal/alerts/alert-store.ts
tests control-plane/portal/alerts/alerts-and-mails.test.ts: low balances under two replicas on sqlite
credits of failed jobs arm a threshold
  - return added || nowMs - told.atMs >= TOLD_AGAIN_MS ? 'arm' : 'none';
  + return added || nowMs > 0 ? 'arm' : 'none';
  = is not told at every job that fails at the threshold

file control-plane/core/webhooks/deliver-messages.ts
tests control-plane/portal/alerts/mail-delivery.test.ts
a mail that is being sent is due
  - (row.lease_expires_at === null || row.lease_expires_at <= row.read_at) &&
  = are sent by another replica where one dies over them, under the same id
`;
