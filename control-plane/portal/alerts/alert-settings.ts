/**
 * The thresholds of an account, and the address and secret of its events. Each change locks the
 * account's row and writes the audit log.
 */
import { type Actor, requireAuthority } from '@matting/accounts/audit-log.ts';
import { readMessages } from '@matting/core/webhooks/outbox-listing.ts';
import { type AccountEventRow, insertWebhook } from '@matting/core/webhooks/outbox-store.ts';
import { type Database, type Db, query, transact } from '@matting/database/database.ts';
import { isAsciiWord, matchesOne } from '@matting/database/statements.ts';
import { readSentToday, type TestBounds, takeTest, type Withheld } from '../mails/messages.ts';

/** The audit entry's id is made outside of the transaction, which may repeat. */
export interface ChangedBy {
  readonly auditId: string;
  readonly actor: Actor;
}

export type EventDelivery = Awaited<ReturnType<typeof readMessages>>[number];

type AccountWebhook = NonNullable<Awaited<ReturnType<typeof readWebhook>>>;

interface SealedWebhook extends Pick<AccountWebhook, 'secret' | 'secretKeyId'> {
  readonly accountId: string;
}

type TestOutcome = 'sent' | 'too-soon' | Withheld;

export type AlertSettingsStore = ReturnType<typeof alertSettings>;

export function alertSettings(database: Database) {
  return {
    read: (accountId: string) =>
      query(database, async db => ({
        ...(await readSettings(db, accountId)),
        sentToday: await readSentToday(database, db, accountId),
      })),
    webhook: (accountId: string) => query(database, db => readWebhook(db, accountId)),
    /** @param thresholds at most THRESHOLDS_MAX; those that stay keep their state */
    setThresholds: (accountId: string, thresholds: readonly number[], by: ChangedBy) =>
      transact(database, tx => setThresholds(database, tx, { accountId, thresholds, by })),
    /** False: neither a new secret nor an old one. @param webhook null: removes the address */
    setWebhook: (accountId: string, webhook: NewWebhook | null, by: ChangedBy) =>
      transact(database, tx => setWebhook(database, tx, { accountId, webhook, by })),
    /** Sends a test now, unless one went to this or an earlier address within `everyMs`. */
    sendTest: (event: AccountEventRow, bounds: TestBounds, by: ChangedBy) =>
      transact(database, tx => sendTest(database, tx, { event, bounds, by })),
    listSealedWithOthers: (keyId: string, limit: number) =>
      listSealedWithOthers(database, keyId, limit),
    reseal: (from: SealedWebhook, to: SealedWebhook) =>
      query(database, db =>
        matchesOne(
          db
            .updateTable('account_webhooks')
            .set({ secret: to.secret, secret_key_id: to.secretKeyId })
            .where('account_id', '=', from.accountId)
            .where('secret', '=', from.secret),
        ),
      ),
  };
}

/** The context that an account's own secret is bound to, in place of a job's id. */
export function accountSecretId(accountId: string): string {
  return `account ${accountId}`;
}

async function readSettings(db: Db, accountId: string) {
  const alerts = await readAlerts(db, accountId);
  const webhook = await readWebhook(db, accountId);
  const events = [...alerts.map(alert => alert.told_event), webhook?.test ?? null];
  const deliveries = await readMessages(
    db,
    events.filter(id => id !== null),
  );
  const deliveryOf = (event: string | null | undefined) =>
    deliveries.find(({ id }) => id === event) ?? null;
  return {
    thresholds: alerts.map(({ threshold, told_at, told_event }) => ({
      threshold,
      notifiedAtMs: told_at,
      /** null: no event was sent, or its row was removed. */
      delivery: deliveryOf(told_event),
    })),
    webhook: webhook ?? null,
    test: deliveryOf(webhook?.test),
  };
}

function readAlerts(db: Db, accountId: string) {
  return db
    .selectFrom('balance_alerts')
    .select(['threshold', 'told_at', 'told_event'])
    .where('account_id', '=', accountId)
    .orderBy('threshold', 'desc')
    .execute();
}

async function readWebhook(db: Db, accountId: string) {
  if (!isAsciiWord(accountId)) return undefined;
  return db
    .selectFrom('account_webhooks')
    .select(['url', 'secret', 'secret_key_id as secretKeyId'])
    .select(['created_at as createdAtMs', 'test_event as test'])
    .where('account_id', '=', accountId)
    .executeTakeFirst();
}

interface Change {
  readonly accountId: string;
  readonly by: ChangedBy;
}

async function setThresholds(
  database: Database,
  tx: Db,
  { accountId, thresholds, by }: Change & { readonly thresholds: readonly number[] },
): Promise<void> {
  const { log } = await authorityOf(database, tx, { accountId, by });
  const before = (await readAlerts(tx, accountId)).map(row => row.threshold);
  const gone = before.filter(threshold => !thresholds.includes(threshold));
  const added = thresholds.filter(threshold => !before.includes(threshold));
  if (gone.length === 0 && added.length === 0) return;
  if (gone.length > 0) {
    await tx
      .deleteFrom('balance_alerts')
      .where('account_id', '=', accountId)
      .where('threshold', 'in', gone)
      .execute();
  }
  for (const threshold of added) {
    await tx
      .insertInto('balance_alerts')
      .values({ account_id: accountId, threshold, created_at: database.nowMs })
      .execute();
  }
  const values = { before: listed(before), after: listed(thresholds) };
  await log({ action: 'alerts.thresholds_set', subject: 'low balance', ...values });
}

function listed(thresholds: readonly number[]) {
  return { thresholds: [...thresholds].sort((one, other) => other - one).join(', ') };
}

type NewWebhook =
  | Pick<AccountWebhook, 'url' | 'secret' | 'secretKeyId'>
  | (Pick<AccountWebhook, 'url'> & { readonly secret?: never });

async function setWebhook(
  database: Database,
  tx: Db,
  { accountId, webhook, by }: Change & { readonly webhook: NewWebhook | null },
): Promise<boolean> {
  const { log } = await authorityOf(database, tx, { accountId, by });
  const before = await readWebhook(tx, accountId);
  if (webhook === null) {
    if (before === undefined) return true;
    await tx.deleteFrom('account_webhooks').where('account_id', '=', accountId).execute();
  } else {
    const { url } = webhook;
    const sealed = webhook.secret && {
      secret: webhook.secret,
      secret_key_id: webhook.secretKeyId,
    };
    if (before !== undefined) {
      await tx
        .updateTable('account_webhooks')
        .set({ url, ...sealed })
        .where('account_id', '=', accountId)
        .execute();
    } else if (sealed === undefined) return false;
    else {
      await tx
        .insertInto('account_webhooks')
        .values({ account_id: accountId, url, ...sealed, created_at: database.nowMs })
        .execute();
    }
  }
  await log(webhookChange(before, webhook));
  return true;
}

/** The audit log shows owners the addresses, but only that a secret is new. */
function webhookChange(before: AccountWebhook | undefined, after: NewWebhook | null) {
  const isNew = before === undefined || after === null;
  const sameSecret = !isNew && (!after.secret || Buffer.from(before.secret).equals(after.secret));
  return {
    action: after === null ? 'alerts.webhook_removed' : 'alerts.webhook_set',
    subject: 'webhook',
    ...(before === undefined ? {} : { before: { url: before.url } }),
    ...(after === null ? {} : { after: { url: after.url, new_secret: !sameSecret } }),
  };
}

interface Test {
  readonly bounds: TestBounds;
  readonly event: AccountEventRow;
  readonly by: ChangedBy;
}

async function sendTest(
  database: Database,
  tx: Db,
  { event, bounds, by }: Test,
): Promise<TestOutcome> {
  const { accountId } = event;
  const { log } = await authorityOf(database, tx, { accountId, by });
  // The row counts tests of earlier addresses, too.
  const row = await readWebhook(tx, accountId);
  if (row === undefined) return 'too-soon';
  if (row.test === event.id) return 'sent';
  const refused = await takeTest(database, tx, accountId, bounds);
  if (refused !== undefined) return refused;
  await tx
    .updateTable('account_webhooks')
    .set({ test_event: event.id })
    .where('account_id', '=', accountId)
    .execute();
  await insertWebhook(database, tx, event);
  const after = { event_id: event.id };
  await log({ action: 'alerts.webhook_tested', subject: 'webhook', after });
  return 'sent';
}

function authorityOf(database: Database, tx: Db, { accountId, by }: Change) {
  const { actor, auditId: entryId } = by;
  return requireAuthority(database, tx, { accountId, actor, entryId });
}

/** Two ranges around this key's id, so that the database can use account_webhooks_key. */
async function listSealedWithOthers(database: Database, keyId: string, limit: number) {
  const found: SealedWebhook[] = [];
  for (const side of ['<', '>'] as const) {
    const rows = await query(database, db =>
      db
        .selectFrom('account_webhooks')
        .select(['account_id as accountId', 'secret', 'secret_key_id as secretKeyId'])
        .where('secret_key_id', side, keyId)
        .orderBy('secret_key_id')
        .orderBy('account_id')
        .limit(limit - found.length)
        .execute(),
    );
    found.push(...rows);
    if (found.length >= limit) break;
  }
  return found;
}
