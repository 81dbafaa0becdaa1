/**
 * Whose mail is next: accounts take turns in the order of their ids, each by the mail of its that
 * is due the longest. So an account with a hundred mails, or whose mails come again because a
 * server puts them off, holds up nobody else's by more than one. Two ways lead to them, and neither
 * reads more when more mails wait:
 *
 * 1. In the order of their times, the first HEAD_MAX. Nearly always there are fewer: those are all.
 * 2. Otherwise from account to account in mail_outbox_turns by seeks, ACCOUNTS_MAX at most, from
 *    where the last walk stopped.
 */
import type { Database } from '../database/connect.ts';
import { throughIndex } from '../database/through-index.ts';
import { query } from '../database/transact.ts';

/** Rows read in the order of their times. */
export const HEAD_MAX = 128;
/** Accounts with mails that wait, seen for one answer, a seek or two each. */
const ACCOUNTS_MAX = 128;
const BY_DUE = throughIndex('mail_outbox', 'mail_outbox_due');
const BY_TURN = throughIndex('mail_outbox', 'mail_outbox_turns');

export class MailTurns {
  readonly #database: Database;
  /** Whose turn it was last. */
  #after = '';

  constructor(database: Database) {
    this.#database = database;
  }

  /** Ids of mails that are due, one an account, `limit` at most. @param full have no turn now */
  async next(limit: number, full: readonly string[]): Promise<string[]> {
    const head = await this.#readHead();
    const all = head.length < HEAD_MAX;
    const turns = all ? new Map<string, string>() : await this.#walk(limit, full);
    const first = new Map<string, string>();
    for (const { id, account_id: account } of head) {
      if (!first.has(account) && !full.includes(account)) first.set(account, id);
    }
    // After a walk that met too many accounts without a mail that is due: no place stays empty.
    for (const [account, id] of [...first].sort(behind(this.#after))) {
      if (turns.size >= limit) break;
      turns.set(account, turns.get(account) ?? id);
      if (all) this.#after = account;
    }
    return [...turns.values()];
  }

  #readHead() {
    const { dialect, nowMs } = this.#database;
    return query(this.#database, db =>
      db
        .selectFrom(BY_DUE[dialect])
        .select(['id', 'account_id'])
        .where('due_at', '<=', nowMs)
        .orderBy('due_at')
        .limit(HEAD_MAX)
        .execute(),
    );
  }

  /** Ids by account. */
  async #walk(limit: number, full: readonly string[]): Promise<Map<string, string>> {
    const found = new Map<string, string>();
    let begin: string | undefined;
    for (let seen = 0; seen < ACCOUNTS_MAX && found.size < limit; seen += 1) {
      const account = (await this.#accountBehind(this.#after)) ?? (await this.#accountBehind(''));
      // None, or all of them were seen.
      if (account === undefined || account === begin) break;
      begin ??= account;
      this.#after = account;
      const id = full.includes(account) ? undefined : await this.#firstOf(account);
      if (id !== undefined) found.set(account, id);
    }
    return found;
  }

  async #accountBehind(account: string): Promise<string | undefined> {
    const row = await query(this.#database, db =>
      db
        .selectFrom(BY_TURN[this.#database.dialect])
        .select('account_id')
        .where('status', '=', 'pending')
        .where('account_id', '>', account)
        .orderBy('account_id')
        .limit(1)
        .executeTakeFirst(),
    );
    return row?.account_id;
  }

  async #firstOf(account: string): Promise<string | undefined> {
    const { dialect, nowMs } = this.#database;
    const row = await query(this.#database, db =>
      db
        .selectFrom(BY_TURN[dialect])
        .select('id')
        .where('status', '=', 'pending')
        .where('account_id', '=', account)
        .where('due_at', '<=', nowMs)
        .orderBy('due_at')
        .limit(1)
        .executeTakeFirst(),
    );
    return row?.id;
  }
}

/** Accounts with their mails, from the one behind `place` around to it. */
function behind(place: string) {
  return ([one]: readonly [string, string], [other]: readonly [string, string]): number => {
    const [oneWaits, otherWaits] = [one <= place, other <= place];
    if (oneWaits !== otherWaits) return oneWaits ? 1 : -1;
    return one < other ? -1 : 1;
  };
}
