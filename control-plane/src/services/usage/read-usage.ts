/** What an account used, for programs (GET /v1/account/usage) and for its pages. */
import { ContractError } from '#contract/errors.ts';
import {
  addUsage,
  isoOfDay,
  monthStartOf,
  NO_USAGE,
  type UsageField,
  type UsageFieldError,
  type UsageFigures,
  type UsageGroup,
  type UsageQuestion,
  usageQuestionOf,
} from '../../domain/account/usage.ts';
import type { ApiKeyStore } from '../../store/accounts/api-key-store.ts';
import type { UsageOf, UsageStore } from '../../store/usage/usage-store.ts';

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

export interface ReadUsageDependencies {
  readonly usage: Pick<UsageStore, 'read' | 'total' | 'today'>;
  readonly apiKeys: Pick<ApiKeyStore, 'list'>;
}

export class ReadUsage {
  readonly #dependencies: ReadUsageDependencies;

  constructor(dependencies: ReadUsageDependencies) {
    this.#dependencies = dependencies;
  }

  /** @throws ContractError INVALID_PARAMETER, which names the field */
  async view(accountId: string, texts: UsageTexts): Promise<UsageView> {
    const answer = await this.ask(accountId, texts);
    if ('fault' in answer) throw wrong(answer);
    return answer;
  }

  /** The same, with what is wrong as an answer. */
  ask(accountId: string, texts: UsageTexts): Promise<UsageView | UsageFieldError> {
    return this.#read(accountId, texts);
  }

  /** Credits charged since the month began, UTC. */
  async chargedThisMonth(accountId: string): Promise<number> {
    const { usage } = this.#dependencies;
    const to = await usage.today();
    const total = await usage.total(accountId, { from: monthStartOf(to), to });
    if (total === undefined) throw wrong(TOO_MUCH);
    return total.credits;
  }

  async #read(accountId: string, texts: UsageTexts): Promise<UsageView | UsageFieldError> {
    const { usage } = this.#dependencies;
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

  async #entries(
    accountId: string,
    { group }: UsageQuestion,
    rows: readonly UsageOf[],
  ): Promise<UsageEntry[]> {
    if (group === 'key') return this.#byKey(accountId, rows);
    return rows.map(row => {
      const figures = figuresOf(row);
      if (group === 'day') return { day: isoOfDay(Number(row.name)), ...figures };
      if (group === 'outcome') return { outcome: row.name, ...figures };
      return { format: row.name, ...figures };
    });
  }

  async #byKey(accountId: string, rows: readonly UsageOf[]): Promise<UsageEntry[]> {
    const keys = await this.#dependencies.apiKeys.list(accountId);
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
