/** What an account used, for programs (GET /v1/account/usage) and for its pages; its first page too. */
import { ContractError } from '#contract/errors.ts';
import { publicState } from '../../core/jobs/job.ts';
import type { StoresWithoutEnds } from '../../core/stores.ts';
import { csvLine } from '../orders/ledger-history.ts';
import type { PortalStores } from '../portal-stores.ts';
import {
  addUsage,
  DAY_MS,
  isoOfDay,
  monthStartOf,
  NO_USAGE,
  type UsageField,
  type UsageFieldError,
  type UsageFigures,
  type UsageGroup,
  type UsageQuestion,
  usageQuestionOf,
} from './usage.ts';
import type { UsageOf } from './usage-store.ts';

/** As they were asked. */
export type UsageTexts = Readonly<Partial<Record<UsageField, string>>>;

/** Figures of one day, key, outcome or format. */
export type UsageEntry = UsageFigures &
  (
    | { readonly day: string }
    /** `key` is the part that is no secret; null: not known any more. */
    | { readonly key: string | null; readonly name: string | null }
    | { readonly outcome: string }
    | { readonly format: string }
  );

/** What GET /v1/account/usage answers. */
export interface UsageView {
  /** Dates, both included. */
  readonly from: string;
  readonly to: string;
  readonly group: UsageGroup;
  readonly total: UsageFigures;
  /** In the order of days or names; what was not used is left out. */
  readonly usage: readonly UsageEntry[];
}

export class ReadUsage {
  readonly #stores: Pick<StoresWithoutEnds & PortalStores, 'usage' | 'apiKeys'>;

  constructor(stores: Pick<StoresWithoutEnds & PortalStores, 'usage' | 'apiKeys'>) {
    this.#stores = stores;
  }

  /** @throws ContractError INVALID_PARAMETER, which names the field */
  async view(accountId: string, texts: UsageTexts): Promise<UsageView> {
    const answer = await this.ask(accountId, texts);
    if ('fault' in answer) throw wrong(answer);
    return answer;
  }

  /** The same, with what is wrong as an answer. */
  async ask(accountId: string, texts: UsageTexts): Promise<UsageView | UsageFieldError> {
    const { usage } = this.#stores;
    const question = usageQuestionOf(texts, await usage.today());
    if ('fault' in question) return question;
    const rows = await usage.read(accountId, question);
    if (rows === undefined) return TOO_MUCH;
    return {
      from: isoOfDay(question.from),
      to: isoOfDay(question.to),
      group: question.group,
      total: rows.map(figuresOf).reduce(addUsage, NO_USAGE),
      usage: await this.#entries(accountId, question, rows),
    };
  }

  /** Credits charged since the month began, UTC. */
  async chargedThisMonth(accountId: string): Promise<number> {
    const { usage } = this.#stores;
    const to = await usage.today();
    const total = await usage.total(accountId, { from: monthStartOf(to), to });
    if (total === undefined) throw wrong(TOO_MUCH);
    return total.credits;
  }

  async #entries(accountId: string, { group }: UsageQuestion, rows: readonly UsageOf[]) {
    if (group === 'key') return this.#byKey(accountId, rows);
    return rows.map(row => {
      const figures = figuresOf(row);
      if (group === 'day') return { day: isoOfDay(Number(row.name)), ...figures };
      if (group === 'outcome') return { outcome: row.name, ...figures };
      return { format: row.name, ...figures };
    });
  }

  async #byKey(accountId: string, rows: readonly UsageOf[]): Promise<UsageEntry[]> {
    const keys = await this.#stores.apiKeys.list(accountId);
    const byId = new Map(keys.map(key => [key.id, key]));
    return rows.map(row => {
      const key = byId.get(row.name);
      return { key: key?.prefix ?? null, name: key?.name ?? null, ...figuresOf(row) };
    });
  }
}

function figuresOf({ images, failed, credits }: UsageFigures): UsageFigures {
  return { images, failed, credits };
}

const TOO_MUCH: UsageFieldError = {
  field: 'from',
  fault: 'heavy',
  detail: 'leaves too many days of too many keys until to: ask for fewer days',
};

function wrong({ field, detail }: UsageFieldError): ContractError {
  const fieldErrors = [{ field, detail }];
  return new ContractError('INVALID_PARAMETER', `${field} ${detail}`, { fieldErrors });
}

/** Jobs of each list. */
const LISTED_MAX = 5;
/** Failures that are older are on the page of jobs. */
const FAILED_WITHIN_MS = 7 * DAY_MS;

export type OverviewView = Awaited<ReturnType<Overview['read']>>;

interface OverviewDependencies extends Pick<StoresWithoutEnds, 'jobs' | 'ledger'> {
  readonly readUsage: ReadUsage;
}

export class Overview {
  readonly #dependencies: OverviewDependencies;

  constructor(dependencies: OverviewDependencies) {
    this.#dependencies = dependencies;
  }

  /** Usage of the last thirty days; running jobs the oldest first, failures the latest first. */
  async read(accountId: string) {
    const { ledger, readUsage, jobs } = this.#dependencies;
    const chargedThisMonth = await readUsage.chargedThisMonth(accountId);
    const usage = await readUsage.view(accountId, {});
    const balances = await ledger.balances(accountId);
    if (balances === undefined) throw new Error(`the page of an unknown account: ${accountId}`);
    const { available, reserved } = balances;
    const open = await jobs.openOf(accountId, LISTED_MAX);
    const failed = { states: ['failed'], endedWithinMs: FAILED_WITHIN_MS } as const;
    const ended = await jobs.list({ ...failed, accountId, limit: LISTED_MAX });
    const running = open.map(({ id, state, createdAtMs }) => {
      const seen = publicState({ state, expiresAtMs: null, readAtMs: 0 });
      return { id, state: seen === 'processing' ? seen : 'queued', createdAtMs } as const;
    });
    const failures = ended.map(({ id, failure, finishedAtMs, createdAtMs }) => {
      return { id, code: failure?.code ?? '', endedAtMs: finishedAtMs ?? createdAtMs };
    });
    return { available, reserved, chargedThisMonth, usage, running, failures };
  }
}

/** Names of the columns are those of the API. */
export function usageCsv({ group, usage }: UsageView): string {
  const names = group === 'key' ? ['key', 'name'] : [group];
  const head = csvLine([...names, 'images', 'failed', 'credits']);
  const lines = usage.map(entry => {
    const { images, failed, credits } = entry;
    return csvLine([...namesOf(entry), images, failed, credits]);
  });
  return [head, ...lines].join('');
}

function namesOf(entry: UsageEntry): string[] {
  if ('key' in entry) return [entry.key ?? '', entry.name ?? ''];
  if ('day' in entry) return [entry.day];
  if ('outcome' in entry) return [entry.outcome];
  return [entry.format];
}
