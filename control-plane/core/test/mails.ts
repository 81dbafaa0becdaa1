import { randomUUID } from 'node:crypto';
import type { Stores } from '../stores.ts';
import type { NewMail } from '../webhooks/outbox-store.ts';
import { NONE_FULL } from './fixtures.ts';

export function mailOf(accountId: string): NewMail {
  const id = randomUUID();
  return { id, accountId, recipient: `ada@${accountId}.test`, subject: 'low', body: 'text' };
}

/** @param accounts have no free slot */
export function dueMails(
  { outbox }: Pick<Stores, 'outbox'>,
  limit: number,
  accounts: readonly string[] = [],
) {
  const full = { ...NONE_FULL, accounts };
  return outbox.listDue({ kind: 'mail', limit, secretKeyIds: [], full });
}

export const mailEnd = (error?: string) => ({
  statusCode: null,
  ...(error && { error }),
  durationMs: 5,
});
