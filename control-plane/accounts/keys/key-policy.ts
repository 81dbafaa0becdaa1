/**
 * The rights of an API key, and their input formats. A key without a policy may do all that its
 * account may; every member of a policy only restricts it.
 */
import { isIpInNetworks, parseExactNetwork } from '@matting/http/networks.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import { SELECTABLE_NAME } from '@matting/proto/contract/selectable-names.ts';
import { CREDITS_AMOUNT_MAX } from '../ledger/ledger.ts';

/** read: states and results of jobs, by their ids. account: balance, keys, packages and usage. */
export const KEY_SCOPES = ['submit', 'read', 'account'] as const;
export type KeyScope = (typeof KEY_SCOPES)[number];

export interface KeyPolicy {
  /** Absent: the account's credits are the only limit. */
  readonly cap?: KeyCap;
  /** 1 to KEY_RATE_MAX; absent: the account's rate is the only limit. */
  readonly submissionsPerMinute?: number;
  /** Not empty, in the order of KEY_SCOPES; absent: all. */
  readonly scopes?: readonly KeyScope[];
  /** Caller addresses that may use the key, in the form of parseExactNetwork; absent: any. */
  readonly networks?: readonly string[];
  /** Models that requests may name, not empty; absent: all offered ones. */
  readonly models?: readonly string[];
}

/** Submissions per minute, more than a key could send. */
export const KEY_RATE_MAX = 1_000_000;
export const KEY_EXPIRY_DAYS_MAX = 3650;
const HOUR_MS = 3_600_000;
/** How long the old secret may stay valid after a rotation. */
export const ROTATION_OVERLAPS = {
  'at-once': 0,
  '1h': HOUR_MS,
  '24h': DAY_MS,
  '7d': 7 * DAY_MS,
} as const;
export type RotationOverlap = keyof typeof ROTATION_OVERLAPS;
/** Unrevoked keys of an account. Two concurrent creations may exceed it by one. */
export const KEYS_ALIVE_MAX = 200;
/** Keys of an account including revoked ones, which stay because jobs and figures name them. */
export const KEYS_EVER_MAX = 2000;

export const NO_POLICY: KeyPolicy = {};

export function isKeyScope(text: string): text is KeyScope {
  return (KEY_SCOPES as readonly string[]).includes(text);
}

export function refusalOfKey(
  { scopes, networks }: KeyPolicy,
  scope: KeyScope | undefined,
  address: string,
): string | undefined {
  if (networks !== undefined && !isIpInNetworks(address, networks)) {
    return `The API key does not allow requests from ${address || 'an unknown address'}. Add it to the networks of the key, or use another key.`;
  }
  if (scope !== undefined && scopes !== undefined && !scopes.includes(scope)) {
    return `The API key does not have the scope ${scope}. Use a key that has it, or add it to this one.`;
  }
  return undefined;
}

export const CAP_PERIODS = ['total', 'day', 'month'] as const;
/** A cap's count resets at midnight UTC after its period. total: it never resets. */
export type CapPeriod = (typeof CAP_PERIODS)[number];

export function isCapPeriod(text: string): text is CapPeriod {
  return (CAP_PERIODS as readonly string[]).includes(text);
}

/** Credits that a key's jobs may take in a period, 1 to CREDITS_AMOUNT_MAX. */
export interface KeyCap {
  readonly credits: number;
  readonly period: CapPeriod;
}

/** No two counts of a key start at the same time. */
interface CapCount {
  readonly windowStartMs: number | null;
  readonly used: number;
}

interface BegunCount extends CapCount {
  readonly windowStartMs: number;
}

/** UTC milliseconds; 0: the count never resets. */
function capPeriodStartMs(period: CapPeriod, nowMs: number): number {
  return period === 'total' ? 0 : periodStartMs(period, nowMs, 0);
}

export function capResetsAtMs(period: CapPeriod, nowMs: number): number | null {
  return period === 'total' ? null : periodStartMs(period, nowMs, 1);
}

function periodStartMs(period: 'day' | 'month', nowMs: number, later: number): number {
  const now = new Date(nowMs);
  const [year, month] = [now.getUTCFullYear(), now.getUTCMonth()];
  return period === 'day'
    ? Date.UTC(year, month, now.getUTCDate() + later)
    : Date.UTC(year, month + later);
}

/** @returns the stored count, or a new one if its period has ended */
export function capCountAt({ period }: KeyCap, count: CapCount, nowMs: number): BegunCount {
  const { windowStartMs, used } = count;
  const startMs = capPeriodStartMs(period, nowMs);
  // The count may start within the period: somebody set the cap then, or set the clock back.
  if (windowStartMs !== null && windowStartMs >= startMs) return { windowStartMs, used };
  return { windowStartMs: startMs, used: 0 };
}

export function takeOfCap(
  cap: KeyCap,
  count: CapCount,
  credits: number,
  nowMs: number,
): BegunCount | undefined {
  const { windowStartMs, used } = capCountAt(cap, count, nowMs);
  return used + credits > cap.credits ? undefined : { windowStartMs, used: used + credits };
}

/** @returns the count to store with a new cap: a new one, unless only the credits change */
export function countOfNewCap(
  before: KeyCap | undefined,
  cap: KeyCap,
  count: CapCount,
  nowMs: number,
): CapCount {
  if (before?.period === cap.period) return count;
  const lastStartMs = count.windowStartMs ?? -1;
  return { windowStartMs: Math.max(nowMs, lastStartMs + 1), used: 0 };
}

export function capReached({ credits, period }: KeyCap, resetsAtMs: number | null): string {
  const of = period === 'total' ? `${credits} credits` : `${credits} credits a ${period}`;
  const until =
    resetsAtMs === null
      ? 'Raise the cap, or use another key.'
      : `The cap resets at ${new Date(resetsAtMs).toISOString()}.`;
  return `The API key has used its cap of ${of}. ${until}`;
}

export const KEY_NETWORKS_MAX = 32;
export const KEY_MODELS_MAX = 64;

export const parseCapCredits = (text: string) => wholeIn(text, CREDITS_AMOUNT_MAX);
export const parseKeyRate = (text: string) => wholeIn(text, KEY_RATE_MAX);
export const parseExpiryDays = (text: string) => wholeIn(text, KEY_EXPIRY_DAYS_MAX);

/** @returns each scope once, in the order of KEY_SCOPES; 'all': the names have every scope */
export function parseKeyScopes(names: readonly string[]): readonly KeyScope[] | 'all' | undefined {
  if (names.length === 0 || !names.every(isKeyScope)) return undefined;
  const scopes = KEY_SCOPES.filter(scope => names.includes(scope));
  return scopes.length === KEY_SCOPES.length ? 'all' : scopes;
}

/**
 * @returns each model once; 'all': the list is empty. The service need not offer the models now.
 */
export function parseKeyModels(names: readonly string[]): readonly string[] | 'all' | undefined {
  const models = [...new Set(names)];
  if (models.length > KEY_MODELS_MAX) return undefined;
  if (!models.every(name => SELECTABLE_NAME.test(name))) return undefined;
  return models.length === 0 ? 'all' : models;
}

/**
 * Blanks, commas and line ends separate networks.
 * @returns each network once; 'any': the list is empty
 */
export function parseKeyNetworks(
  text: string,
): { readonly networks: readonly string[] | 'any' } | { readonly wrong: string } {
  const words = text.split(/[\s,]+/).filter(word => word !== '');
  const networks = new Set<string>();
  for (const word of words) {
    const network = parseExactNetwork(word);
    if (network === undefined || networks.size >= KEY_NETWORKS_MAX) return { wrong: word };
    networks.add(network);
  }
  return { networks: networks.size === 0 ? 'any' : [...networks] };
}

function wholeIn(text: string, max: number): number | undefined {
  const value = /^[0-9]{1,12}$/.test(text) ? Number(text) : 0;
  return value >= 1 && value <= max ? value : undefined;
}
