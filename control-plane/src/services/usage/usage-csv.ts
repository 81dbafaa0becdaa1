/** Figures of usage as CSV: a line of names, then one an entry. */
import { csvLine } from '../sales/csv.ts';
import type { UsageEntry, UsageView } from './read-usage.ts';

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
