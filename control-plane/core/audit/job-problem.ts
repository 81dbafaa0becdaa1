import type { LedgerKind } from '@matting/accounts/ledger/ledger.ts';
import type { JobState } from '@matting/queue/job.ts';

interface JobEntries {
  readonly reserve: number | null;
  readonly settlement: { readonly kind: LedgerKind; readonly amount: number } | null;
}

/**
 * Checks a job's ledger entries. Every job that takes a credit has a reserve; a final one also has
 * a charge or a release of the same amount.
 * @param state null: retention removed the job's row
 * @returns undefined: the entries are right
 */
export function jobProblem(
  state: JobState | null,
  entries: JobEntries,
  takesCredit = true,
): string | undefined {
  const { reserve, settlement } = entries;
  if (!takesCredit) {
    if (reserve === null && settlement === null) return undefined;
    return `the job has no credit, its ledger has a ${settlement?.kind ?? 'reserve'}`;
  }
  if (state === null) {
    if (reserve !== null && settlement !== null) {
      if (reserve === settlement.amount) return undefined;
      return `the job's row is gone and its reserve and ${settlement.kind} differ`;
    }
    return `the job's row is gone and its ${settlement?.kind ?? 'reserve'} has no partner`;
  }
  const settled = settlement?.kind ?? 'none';
  const moved = settlement?.amount ?? reserve;
  if (reserve !== null && settled === settlementOf(state) && moved === reserve) return undefined;
  return (
    `the job is ${state}, its ledger has ` +
    `${reserve === null ? 'no reserve' : `reserve ${reserve}`} and ` +
    `${settlement === null ? 'no settlement' : `${settlement.kind} ${settlement.amount}`}`
  );
}

function settlementOf(state: JobState): 'charge' | 'release' | 'none' {
  if (state === 'succeeded') return 'charge';
  return state === 'failed' ? 'release' : 'none';
}
