/**
 * Mails the owners before an API key expires, once for each expiry, EXPIRY_NOTICE_MS before. Every
 * replica with a mail server reads all keys, a page at a time. The unique key of the row that
 * commits with the mails lets only one replica queue them. The row also notes what the account's
 * daily quota withheld, for the next day (UTC).
 */
import { randomUUID } from 'node:crypto';
import type { CoreStores } from '@matting/core/package.ts';
import type { CallbackSecrets } from '@matting/core/secrets/secret-box.ts';
import { readMessages } from '@matting/core/webhooks/outbox-listing.ts';
import type { NewMail } from '@matting/core/webhooks/outbox-store.ts';
import { type Database, type Db, query, transact } from '@matting/database/database.ts';
import { pollingLoop } from '@matting/database/round-loop.ts';
import {
  isInserted,
  matchesOne,
  nowPlusMs,
  removeOldRows,
  startOfDay,
} from '@matting/database/statements.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import type { Logger } from 'pino';
import { type MailText, nameInMail, type OnWithheld, ownersMails } from '../mails/owners-mails.ts';
import type { AlertStore } from './alert-store.ts';
import {
  EVERYTHING,
  isWithheldToday,
  type QueuedNotice,
  type Rest,
  writeNotice,
} from './notices.ts';

const EXPIRY_NOTICE_MS = 14 * DAY_MS;

type KeyThatExpires = Awaited<
  ReturnType<CoreStores['apiKeys']['listExpiring']>
>['expiring'][number];

interface ExpiringKey extends KeyThatExpires {
  readonly rest: Rest | null;
}

interface ExpiryNotice {
  readonly key: ExpiringKey;
  readonly id: string;
  readonly mails: readonly NewMail[];
  readonly messagesMax: number;
}

type ExpiryNoticeStore = ReturnType<typeof expiryNoticeStore>;

export function expiryNoticeStore(database: Database) {
  return {
    /** Leaves out keys whose notices are all sent, or whose unsent ones wait for tomorrow. */
    due: (keys: readonly KeyThatExpires[]) => listDue(database, keys),
    queue: (notice: ExpiryNotice) => transact(database, tx => queueNotice(database, tx, notice)),
    removeOld: (limit: number) => {
      const before = nowPlusMs(database.nowMs, -DAY_MS);
      const expired = {
        table: 'key_expiry_notices',
        key: 'id',
        time: 'expires_at',
        before,
      } as const;
      return removeOldRows(database, expired, limit);
    },
  };
}

async function listDue(
  database: Database,
  keys: readonly KeyThatExpires[],
): Promise<ExpiringKey[]> {
  const ids = keys.map(({ id }) => id);
  const queued = ids.length === 0 ? [] : await query(database, db => readQueued(db, ids));
  return keys.flatMap((key): ExpiringKey[] => {
    const row = queued.find(one => one.api_key_id === key.id && one.expires_at === key.expiresAtMs);
    if (row === undefined) return [{ ...key, rest: null }];
    const { withheld_rest: rest } = row;
    return rest === null || isWithheldToday(row, key.readAtMs) ? [] : [{ ...key, rest }];
  });
}

function readQueued(db: Db, ids: readonly string[]) {
  return db
    .selectFrom('key_expiry_notices')
    .select(['api_key_id', 'expires_at', 'withheld_at', 'withheld_rest'])
    .where('api_key_id', 'in', ids)
    .execute();
}

async function queueNotice(
  database: Database,
  tx: Db,
  notice: ExpiryNotice,
): Promise<QueuedNotice | undefined> {
  const { id, key } = notice;
  const isFirst = await (key.rest === null ? begin(tx, notice) : takeUp(database, tx, notice));
  if (!isFirst) return queuedBefore(tx, notice);
  const { queued, rest } = await writeNotice(
    database,
    tx,
    { ...notice, accountId: key.accountId },
    key.rest ?? EVERYTHING,
  );
  if (rest === key.rest && rest === null) return queued;
  await tx
    .updateTable('key_expiry_notices')
    .set({ withheld_at: rest === null ? null : database.nowMs, withheld_rest: rest })
    .where('id', '=', id)
    .execute();
  return queued;
}

function begin(tx: Db, { id, key }: ExpiryNotice): Promise<boolean> {
  const row = { id, api_key_id: key.id, expires_at: key.expiresAtMs };
  return isInserted(tx.insertInto('key_expiry_notices').values(row).execute());
}

/** Takes the row from an earlier day's try, which left a rest. */
function takeUp({ nowMs }: Database, tx: Db, { id, key }: ExpiryNotice): Promise<boolean> {
  return matchesOne(
    tx
      .updateTable('key_expiry_notices')
      .set({ id, withheld_at: nowMs })
      .where('api_key_id', '=', key.id)
      .where('expires_at', '=', key.expiresAtMs)
      .where('withheld_rest', '=', key.rest)
      .where('withheld_at', '<', startOfDay(nowMs)),
  );
}

async function queuedBefore(
  db: Db,
  { id, mails }: ExpiryNotice,
): Promise<QueuedNotice | undefined> {
  const own = await db.selectFrom('key_expiry_notices').select('id').where('id', '=', id).execute();
  if (own.length === 0) return undefined;
  const ids = mails.map(mail => mail.id);
  const written = await readMessages(db, ids);
  return { mails: written.length, event: false, withheld: [] };
}

interface ExpiryMail {
  readonly key: Pick<ExpiringKey, 'id' | 'name' | 'prefix' | 'expiresAtMs'>;
  readonly keysUrl: string;
}

export function expiryMail({ key, keysUrl }: ExpiryMail, language: string | null): MailText {
  const name = nameInMail(key.name);
  const expiry = new Date(key.expiresAtMs).toISOString();
  const [day, time] = [expiry.slice(0, 10), expiry.slice(11, 16)];
  if (language === 'zh-CN') {
    return {
      subject: `API 密钥“${name}”将于 ${day} 到期`,
      text: [
        `API 密钥“${name}”（${key.prefix}）将于 ${day} ${time}（UTC）到期。`,
        '到期后使用该密钥的请求会被拒绝（INVALID_API_KEY）；已提交的任务不受影响。',
        '',
        `更改到期时间或创建新密钥：${keysUrl}/${key.id}`,
        '',
      ].join('\n'),
    };
  }
  return {
    subject: `The API key "${name}" expires on ${day}`,
    text: [
      `The API key "${name}" (${key.prefix}) expires on ${day} at ${time} UTC.`,
      'After that, requests with this key fail with INVALID_API_KEY. Open jobs still finish.',
      '',
      `Change the expiry or create a new key: ${keysUrl}/${key.id}`,
      '',
    ].join('\n'),
  };
}

const POLL_MS = 3_600_000;
const PAGE_KEYS = 500;
/** Pages of one round: after 100,000 keys the next round continues. */
const PAGES_MAX = 200;

interface ExpiryWatchDependencies {
  readonly expiryNotices: Pick<ExpiryNoticeStore, 'due' | 'queue'>;
  readonly apiKeys: Pick<CoreStores['apiKeys'], 'listExpiring'>;
  readonly alerts: Pick<AlertStore, 'owners'>;
  readonly secrets: Pick<CallbackSecrets, 'sealText'>;
  readonly messagesMax: number;
  readonly onWithheld: OnWithheld;
  readonly keysUrl: string;
  readonly log: Pick<Logger, 'info' | 'warn'>;
}

export class KeyExpiryWatch {
  readonly #dependencies: ExpiryWatchDependencies;
  readonly loop = pollingLoop(
    POLL_MS,
    () => this.poll(),
    err => this.#dependencies.log.warn({ err }, 'keys that expire soon were not read'),
  );
  #cursor = '';

  constructor(dependencies: ExpiryWatchDependencies) {
    this.#dependencies = dependencies;
  }

  async poll(): Promise<void> {
    for (let page = 0; page < PAGES_MAX; page += 1) {
      const { apiKeys, expiryNotices } = this.#dependencies;
      const filter = { after: this.#cursor, withinMs: EXPIRY_NOTICE_MS, limit: PAGE_KEYS };
      const { expiring, next } = await apiKeys.listExpiring(filter);
      for (const key of await expiryNotices.due(expiring)) await this.#notify(key);
      this.#cursor = next ?? '';
      if (next === undefined) return;
    }
  }

  async #notify(key: ExpiringKey): Promise<void> {
    const { expiryNotices, alerts, secrets, keysUrl, messagesMax, onWithheld, log } =
      this.#dependencies;
    const { accountId } = key;
    const owners = await alerts.owners(accountId);
    const textOf = (language: string | null) => expiryMail({ key, keysUrl }, language);
    const mails = ownersMails(owners, { accountId, secrets, textOf });
    const queued = await expiryNotices.queue({ key, id: randomUUID(), mails, messagesMax });
    if (queued === undefined) return;
    for (const withheld of queued.withheld) onWithheld(accountId, withheld);
    if (queued.mails === 0) return;
    const apiKeyId = key.id;
    log.info({ accountId, apiKeyId, mails: queued.mails }, 'a key expiry notice was queued');
  }
}
