/**
 * When an account's owners are told that its credits run low. Pure.
 *
 * | threshold | entered by                                | left by                              |
 * |-----------|-------------------------------------------|--------------------------------------|
 * | armed     | an owner sets it; the balance is above it | available <= threshold: it is told   |
 * | told      | it is told                                | available > threshold, and credits   |
 * |           |                                           | were added, or an hour has passed    |
 *
 * Credits of jobs that fail come back: without the second condition an account whose jobs fail at a
 * threshold would be told at every one of them. Credits were added for certain where available and
 * reserved together are more than they were when it was told.
 */
import type { Balances } from '../../core/ledger/ledger.ts';

/** Thresholds of an account. */
export const THRESHOLDS_MAX = 5;
/** The largest: as much as one grant may be. */
export const THRESHOLD_CREDITS_MAX = 1_000_000_000;
/** Between two tellings of a threshold where no credits were added for certain. */
export const TOLD_AGAIN_MS = 3_600_000;

export interface AlertState {
  readonly threshold: number;
  /** null: armed. */
  readonly told: { readonly atMs: number; readonly credits: number } | null;
}

export type AlertStep = 'tell' | 'arm' | 'none';

export function alertStep(
  { threshold, told }: AlertState,
  { available, reserved }: Balances,
  nowMs: number,
): AlertStep {
  if (available <= threshold) return told === null ? 'tell' : 'none';
  if (told === null) return 'none';
  const added = available + reserved > told.credits;
  return added || nowMs - told.atMs >= TOLD_AGAIN_MS ? 'arm' : 'none';
}

/** Falling, each once. Undefined: not whole numbers of credits, or too many of them. */
export function thresholdsOf(texts: readonly string[]): number[] | undefined {
  const given = texts.map(text => text.trim()).filter(text => text !== '');
  const thresholds = [...new Set(given.map(thresholdOf))];
  if (thresholds.length > THRESHOLDS_MAX) return undefined;
  if (thresholds.some(threshold => threshold === undefined)) return undefined;
  return (thresholds as number[]).sort((one, other) => other - one);
}

/** Undefined: no whole number of credits from 0 on. */
export function thresholdOf(text: string): number | undefined {
  const credits = /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN;
  return credits <= THRESHOLD_CREDITS_MAX ? credits : undefined;
}

/** Events of an account that its webhook is sent. */
export type AccountEvent = 'account.balance_low' | 'account.webhook_test';

export interface LowBalance {
  readonly accountId: string;
  readonly accountName: string;
  readonly threshold: number;
  readonly balances: Balances;
  /** UTC milliseconds. */
  readonly atMs: number;
}

/** The body of account.balance_low. @param eventId that of the message, which may come twice */
export function lowBalanceBody(eventId: string, low: LowBalance): string {
  const { accountId, accountName, threshold, balances, atMs } = low;
  const { available, reserved } = balances;
  return JSON.stringify({
    type: 'account.balance_low' satisfies AccountEvent,
    timestamp: new Date(atMs).toISOString(),
    event_id: eventId,
    data: {
      account_id: accountId,
      account: accountName,
      threshold,
      credits: { available, reserved },
    },
  });
}

/** The body of account.webhook_test, which an owner asks for. */
export function webhookTestBody(
  eventId: string,
  account: { readonly id: string; readonly name: string },
  atMs: number,
): string {
  return JSON.stringify({
    type: 'account.webhook_test' satisfies AccountEvent,
    timestamp: new Date(atMs).toISOString(),
    event_id: eventId,
    data: { account_id: account.id, account: account.name },
  });
}
