/** Mails, notifications, low balances: what waits is sealed, and nobody sends without a bound. */
import { mutationsOf } from './mutation.ts';

export const MAIL_MUTATIONS = mutationsOf`
file control-plane/core/open-resources.ts
tests control-plane/core/webhooks/callbacks.test.ts
the body of a notification waits unsealed
  - secrets.sealText(renderOutboxBody(views, job), notificationBody(job.id))
  + renderOutboxBody(views, job)
  = a job shows its callback in every state, the notification does not

file control-plane/core/submission/submit-matting.ts
tests control-plane/core/webhooks/callbacks.test.ts
a secret is taken that receivers read otherwise
  - if (!isReadableSecret(callback.secret)) {
  + if (false as boolean) {
  = half a pair, wrong text, wrong secret: refused, and nothing is left of it

file control-plane/core/webhooks/send-webhooks.ts
tests control-plane/core/webhooks/deliver-webhooks.test.ts: several replicas
a body that is not the notification’s own is sent
  - = secrets.openText(message.body, notificationBody(id));
  + = secrets.openText(message.body, notificationBody(id)) ?? '';
  = fail a notification whose body is not its own
tests control-plane/core/webhooks/deliver-webhooks.test.ts: a notification
a redirect of a receiver is told as any status
  - return outcome.status >= 300 && outcome.status < 400 ? 'redirect' : 'status';
  + return 'status';
  = follows no redirect, whatever its status

file control-plane/portal/alerts/key-expiry-notices.ts
tests control-plane/portal/alerts/key-expiry-notices.test.ts: key expiry notices under two replicas on sqlite
a notice is sent as soon as a key has an expiry
  - || expiresAtMs > seenAtMs + EXPIRY_NOTICE_MS) return [];
  + ) return [];
  = are not sent for keys that expire later or never, have expired or are revoked
a notice is sent once, whatever the expiry becomes
  - one.api_key_id === key.id && one.expires_at === key.expiresAtMs
  + one.api_key_id === key.id
  = are sent again for a later expiry only
every replica sends the notice
  - if (!isFirst) return queuedBefore(tx, notice);
  = reach every owner once, 14 days before a key expires, whichever replica looks
a notice that the quota kept back is noted as sent
  - return rest === null || isWithheldToday(row, seenAtMs) ? [] : [{ ...key, rest }];
  + return [];
  = that the quota keeps back go to whom they have not reached on the next day, once

file control-plane/portal/alerts/notices.ts
tests control-plane/portal/alerts/alerts-and-mails.test.ts: low balances under two replicas on sqlite
a notice that nobody could get is noted as told
  - if (messages.length === 0 && rest === EVERYTHING) {
  + if (false as boolean) {
  = is not noted as told where nobody could be told, and is told once somebody can
tests control-plane/portal/alerts/key-expiry-notices.test.ts: key expiry notices under two replicas on sqlite
owners who had a notice get it again with the rest
  - rest === EVERYTHING || rest.split(' ').includes(key);
  + rest === EVERYTHING || key.length > 0;
  = that the quota keeps back go to whom they have not reached on the next day, once

file control-plane/portal/people/invitations.ts
tests control-plane/portal/people/people.test.ts: mails
an invitation waits unsealed
  - const body = seal(
  + const body = ((plain: string, _: string) => plain)(
  = hold no link that who reads the database could use
an account sends as many mails as it likes
  - { accountName, seal, messagesMax }
  + { accountName, seal }
  = are so many a day, and an invitation beyond them is refused before anything is made

file control-plane/portal/people/link-store.ts
tests control-plane/portal/people/people.test.ts: mails
a withdrawn invitation is sent
  - await withdrawMails(tx, ids.toSorted());
  = bring no invitation that was withdrawn, not even where an attempt to send it failed

file control-plane/core/webhooks/due-messages.ts
tests control-plane/portal/alerts/alerts-and-mails.test.ts: turns of mails on sqlite
the first account has every turn
  - if (met.length === 0) walk.lastAccount = rows.at(-1)?.account_id ?? walk.lastAccount;
  = go round the accounts, one mail each
mails behind those that are looked at wait for them
  - head.length === HEAD_MAX ? await walk.next(limit, wanted) : []
  + [] as DueRow[]
  = reach everybody past accounts with more mails than are looked at

file control-plane/portal/mails/messages.ts
tests control-plane/portal/people/account.test.ts: messages of a day
accounts of others use up the notices of an owner
  - if (message.kind === 'notice') {
  + if (false as boolean) {
  = to owners count for their own account alone
tests control-plane/portal/alerts/alerts-and-mails.test.ts: messages of a day on sqlite
accounts together write to an address as often as they like
  - max: RECIPIENT_MAILS_MAX, reason }
  + max: ACCOUNT_MAILS_MAX, reason }
  = to one address are bounded over all accounts, and of one account to half
an address with another subaddress is another person
  - mailKeyOf(mail).replace(/^([^+@]+)\+[^@]*@/, '$1@')
  + mailKeyOf(mail)
  = to one address are bounded over all accounts, and of one account to half
tests control-plane/portal/people/account.test.ts: messages of a day
one account closes an address to the others
  - RECIPIENT_MAILS_MAX / 2
  + RECIPIENT_MAILS_MAX
  = reach one address from one account half as often as from all

file control-plane/portal/alerts/notices.ts
tests control-plane/portal/alerts/alerts-and-mails.test.ts: messages of a day on sqlite
a threshold that is set anew tells without a bound
  - mails.filter((_, index) => ofMails[index] === undefined)
  + mails.filter(() => ofMails.length >= 0)
  = tell of a threshold that is set anew no oftener

file control-plane/portal/mails/messages.ts
tests control-plane/portal/alerts/alerts-and-mails.test.ts: messages of a day on sqlite
an address that is set again is tested again
  - if (recent !== undefined) return 'too-soon';
  = test an address no oftener where it was removed and set again

file control-plane/core/webhooks/outbox-listing.ts
tests control-plane/portal/jobs/work.test.ts: jobs
people ask a receiver as fast as they like
  - outcome === 'retried' && !isDue ? 'too-soon' : outcome
  + outcome
  = show every attempt of a notification, send it again while it is not delivered

file control-plane/portal/alerts/alert-store.ts
tests control-plane/portal/alerts/alerts-and-mails.test.ts: low balances under two replicas on sqlite
a threshold is told by each replica that sees it
  - .where('told_at', told === null ? 'is' : '=', told?.atMs ?? null)
  = tells each threshold once, whoever looks and however often
a balance that has risen is told
  - .where('available', '<=', threshold),
  = is not told of a balance that has risen since it was seen
a notice that the quota kept back is noted as told
  - const isTold = rest === null || queued.mails > 0 || queued.event;
  + const isTold = true;
  = is not noted as told while the quota keeps it back, and is told on the next day
credits of failed jobs arm a threshold
  - return added || nowMs - told.atMs >= TOLD_AGAIN_MS ? 'arm' : 'none';
  + return added || nowMs > 0 ? 'arm' : 'none';
  = is not told at every job that fails at the threshold

file control-plane/core/webhooks/due-messages.ts
tests control-plane/portal/mails/mail-delivery.test.ts
a mail that is being sent is due
  - (row.lease_expires_at === null || row.lease_expires_at <= row.read_at) &&
  = are sent by another replica where one dies over them, under the same id
`;
