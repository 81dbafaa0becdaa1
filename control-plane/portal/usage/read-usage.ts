import type { CoreStores } from '@matting/core/package.ts';
import { givenTwice, parametersOf, unknownField } from '@matting/http/body-fields.ts';
import { nearName } from '@matting/http/near-names.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import {
  addUsage,
  type DailyUsage,
  dayOfIso,
  isoOfDay,
  NO_USAGE,
  USAGE_DAYS_MAX,
  type UsageField,
  type UsageFieldError,
  type UsageFigures,
  type UsageGroup,
  type UsageOf,
  type UsageQuestion,
  type UsageSplit,
  type UsageStore,
  usageQuestionOf,
} from './usage-store.ts';

type UsageTexts = Readonly<Partial<Record<UsageField, string>>>;

export type UsageEntry = UsageFigures &
  (
    | { readonly day: string }
    /** `key` is the public part. Null: the key is unknown. */
    | { readonly key: string | null; readonly name: string | null }
    | { readonly outcome: string }
    | { readonly format: string }
  );

export interface UsageView {
  readonly from: string;
  readonly to: string;
  readonly group: UsageGroup;
  readonly total: UsageFigures;
  /** In the order of days or names, without empty entries. */
  readonly usage: readonly UsageEntry[];
}

type UsageStores = Pick<CoreStores, 'apiKeys'> & { readonly usage: UsageStore };

export class ReadUsage {
  readonly #stores: UsageStores;

  constructor(stores: UsageStores) {
    this.#stores = stores;
  }

  async view(accountId: string, texts: UsageTexts): Promise<UsageView> {
    const answer = await this.viewOrFault(accountId, texts);
    if ('fault' in answer) throw wrong(answer);
    return answer;
  }

  /** As `view`, but returns a wrong field instead of throwing an error. */
  async viewOrFault(accountId: string, texts: UsageTexts): Promise<UsageView | UsageFieldError> {
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

  /** Usage of each day. The entry of a key has the key's name, or null. */
  async daily(
    accountId: string,
    { from, to }: Pick<UsageView, 'from' | 'to'>,
    split: UsageSplit,
  ): Promise<(Omit<DailyUsage, 'name'> & { readonly name: string | null })[]> {
    const days = { from: dayOfIso(from) ?? 0, to: dayOfIso(to) ?? 0 };
    const rows = await this.#stores.usage.daily(accountId, days, split);
    if (rows === undefined) throw wrong(TOO_MUCH);
    if (split !== 'key') return rows;
    const keys = await this.#keysById(accountId);
    return rows.map(row => ({ ...row, name: keys.get(row.name)?.name ?? null }));
  }

  async hasUsed(accountId: string): Promise<boolean> {
    const { usage } = this.#stores;
    const to = await usage.today();
    const total = await usage.total(accountId, { from: Math.max(0, to - USAGE_DAYS_MAX + 1), to });
    return total === undefined || total.images > 0;
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
    const keys = await this.#keysById(accountId);
    return rows.map(row => {
      const key = keys.get(row.name);
      return { key: key?.prefix ?? null, name: key?.name ?? null, ...figuresOf(row) };
    });
  }

  async #keysById(accountId: string) {
    const keys = await this.#stores.apiKeys.list(accountId);
    return new Map(keys.map(key => [key.id, key]));
  }
}

function figuresOf({ images, failed, corrected, credits }: UsageFigures): UsageFigures {
  return { images, failed, corrected, credits };
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

const FIELDS = ['from', 'to', 'group'] as const;

function meantOf(name: string): string {
  const near = nearName(name, FIELDS);
  return near === undefined ? `Send ${FIELDS.join(', ')}.` : `Did you mean ${near}?`;
}

/** @throws ContractError INVALID_REQUEST: unknown, given twice, or not percent-encoded UTF-8 */
export function readUsageQuery(target: string): UsageTexts {
  const texts: Partial<Record<(typeof FIELDS)[number], string>> = {};
  for (const { name, text } of parametersOf(target)) {
    const field = FIELDS.find(known => known === name);
    if (field === undefined) throw unknownField(name, meantOf);
    if (texts[field] !== undefined) throw givenTwice(field);
    texts[field] = text;
  }
  return texts;
}
