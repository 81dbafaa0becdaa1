import { randomUUID } from 'node:crypto';
import { fundedAccount } from '@matting/core/test/fixtures.ts';
import { mailOf } from '@matting/core/test/mails.ts';
import type { AccountEventRow } from '@matting/core/webhooks/outbox-store.ts';
import type { Database } from '@matting/database/database.ts';
import { addTo } from '@matting/database/test/rows.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import type { LowBalanceNotice, SeenAlert } from '../alerts/alert-store.ts';
import type { Stores } from './fixtures.ts';
import { newLink, OPERATOR } from './people.ts';

export const BY_SYSTEM = () => ({ auditId: randomUUID(), actor: { kind: 'system' } as const });

/** Invites the address until the quota withholds an invitation. */
export async function inviteAtMost(
  stores: Stores,
  accountId: string,
  recipient: string,
): Promise<number> {
  for (let sent = 0; sent <= 20; sent += 1) {
    const id = randomUUID();
    const letter = { id, accountId, recipient, subject: 'x', body: 'y' };
    const link = newLink(accountId, { id, mail: recipient, letter, messagesMax: 100 });
    if ((await stores.links.create(link, OPERATOR)) !== 'created') return sent;
  }
  throw new Error('the bound kept no invitation back');
}

/** Today's counts and withheld notices become yesterday's. */
export async function nextDay({ kysely }: Database): Promise<void> {
  await addTo(kysely, 'message_counts', {}, { day_at: -DAY_MS });
  await addTo(kysely, 'balance_alerts', {}, { withheld_at: -DAY_MS });
  await addTo(kysely, 'key_expiry_notices', {}, { withheld_at: -DAY_MS });
}

export const SEALED = { secret: Uint8Array.of(1, 2, 3), secretKeyId: 'a-key' };
export const TEST_BOUNDS = { everyMs: 3_600_000, messagesMax: 100 };

export const HOOK_URL = 'https://hooks.example/account';

export async function addOwner(database: Database, accountId: string, mail: string): Promise<void> {
  const id = randomUUID();
  const at = { created_at: 1 };
  const { kysely } = database;
  await kysely
    .insertInto('users')
    .values({ id, mail, mail_key: mail, ...at })
    .execute();
  const member = { account_id: accountId, user_id: id, role: 'owner', source: 'invited' } as const;
  await kysely
    .insertInto('members')
    .values({ ...member, ...at })
    .execute();
}

export async function watchedAccount(
  stores: Stores,
  credits: number,
  thresholds: readonly number[],
): Promise<string> {
  const accountId = await fundedAccount(stores, credits);
  await stores.alertSettings.setThresholds(accountId, thresholds, BY_SYSTEM());
  await stores.alertSettings.setWebhook(accountId, { url: HOOK_URL, ...SEALED }, BY_SYSTEM());
  return accountId;
}

export async function seenOf(stores: Stores, accountId: string): Promise<SeenAlert[]> {
  const seen = await stores.alerts.readPage({ accountId, threshold: -1 }, 10);
  return seen.filter(alert => alert.accountId === accountId);
}

/** A notice for a key of the account that expires in a day. */
export async function expiryNoticeOf(stores: Stores, accountId: string) {
  const { key } = await stores.apiKeys.create(accountId, 'expiring', { expiresInMs: 86_400_000 });
  // Starts just before the key.
  const filter = { after: key.id.slice(0, -1), withinMs: 2 * 86_400_000, limit: 10 };
  const { expiring } = await stores.apiKeys.listExpiring(filter);
  const due = await stores.expiryNotices.due(expiring);
  const found = due.find(({ id }) => id === key.id);
  const id = randomUUID();
  return found && { key: found, id, mails: [mailOf(accountId)], messagesMax: 100 };
}

export function eventOf(accountId: string, id: string = randomUUID()): AccountEventRow {
  return { id, accountId, event: 'account.balance_low', url: HOOK_URL, body: '{}', ...SEALED };
}

export function lowBalanceNoticeOf(alert: SeenAlert): LowBalanceNotice {
  const eventId = randomUUID();
  const { accountId } = alert;
  return {
    alert,
    eventId,
    event: eventOf(accountId, eventId),
    mails: [mailOf(accountId)],
    messagesMax: 100,
  };
}
