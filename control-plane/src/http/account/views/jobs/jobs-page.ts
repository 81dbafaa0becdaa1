/** The list of an account's jobs. */
import type { VNode } from 'preact';
import type { Job, PublicJobState } from '../../../../domain/job.ts';
import {
  ACCOUNT_JOB_GROUPS,
  type AccountJobQuestion,
  DAYS_LISTED,
  type JobKey,
} from '../../../../services/account-jobs/account-jobs.ts';
import type { Formats } from '../../words/formats.ts';
import { fill, type Words } from '../../words/words.ts';
import { button, linkButton } from '../components/buttons.ts';
import { filterForm, selectField } from '../components/fields.ts';
import { dataTable, pager } from '../components/lists.ts';
import { badge, emptyState, type Tone, time } from '../components/marks.ts';
import { type Child, html } from '../html.ts';

export type ShownJob = Job & { readonly status: PublicJobState };

export interface JobsPageProps {
  readonly words: Words;
  readonly formats: Formats;
  /** Of the list. */
  readonly path: string;
  readonly question: AccountJobQuestion;
  readonly keys: readonly JobKey[];
  readonly jobs: readonly ShownJob[];
  readonly next: string | undefined;
  readonly first: string | undefined;
}

export function jobsPage(props: JobsPageProps): VNode {
  const { words, jobs, next, first } = props;
  const said = words.jobs;
  const columns = [
    { label: said.job },
    { label: said.state },
    { label: said.key },
    { label: said.created },
    { label: said.took, align: 'end' as const },
    { label: said.result },
  ];
  return html`<div>
    ${filters(props)}
    ${dataTable({
      caption: said.title,
      columns,
      rows: jobs.map(job => rowOf(props, job)),
      empty: emptyState(first === undefined ? said.empty : said.emptyPage),
    })}
    ${pager(words.common, { next, first })}
  </div>`;
}

function filters({ words, path, question, keys }: JobsPageProps): VNode {
  const said = words.jobs;
  return filterForm(
    path,
    selectField({
      name: 'state',
      label: said.state,
      value: question.group,
      options: ACCOUNT_JOB_GROUPS.map(group => ({ value: group, label: said.groups[group] })),
    }),
    selectField({
      name: 'key',
      label: said.key,
      value: question.apiKeyId ?? '',
      options: [
        { value: '', label: said.anyKey },
        ...keys.map(key => ({ value: key.id, label: keyName(words, key, key.id) })),
      ],
    }),
    selectField({
      name: 'days',
      label: said.ended,
      value: String(question.days),
      options: DAYS_LISTED.map(days => ({
        value: String(days),
        label: fill(days === 1 ? said.days.one : said.days.other, { count: days }),
      })),
    }),
    button({ label: words.common.apply, kind: 'secondary' }),
    linkButton({ href: path, label: words.common.clear, kind: 'quiet' }),
  );
}

function rowOf({ words, formats, path, keys }: JobsPageProps, job: ShownJob): Child[] {
  const key = keys.find(({ id }) => id === job.apiKeyId);
  return [
    html`<a class="mono" href=${`${path}/${job.id}`}>${job.id.slice(0, 8)}</a>`,
    statusBadge(words, job.status),
    keyName(words, key, job.apiKeyId),
    time(job.createdAtMs, formats.dateTime(job.createdAtMs)),
    job.finishedAtMs === null ? null : formats.duration(job.finishedAtMs - job.createdAtMs),
    resultText(words, formats, job),
  ];
}

/** The key's name; its id where it is none of the newest. */
export function keyName(words: Words, key: JobKey | undefined, apiKeyId: string): string {
  if (key?.isPlayground) return words.jobs.playground;
  return key?.name ?? `mk_${apiKeyId}`;
}

const TONES: Readonly<Record<PublicJobState, Tone>> = {
  queued: 'neutral',
  processing: 'accent',
  succeeded: 'good',
  failed: 'bad',
  expired: 'neutral',
};

export function statusBadge(words: Words, status: PublicJobState): VNode {
  return badge(words.jobs.states[status], TONES[status]);
}

function resultText(words: Words, formats: Formats, { failure, result }: ShownJob): Child {
  if (failure !== null) return failureText(words, failure.code);
  if (result === null) return null;
  const { width, height, format, bytes } = result;
  return `${width} × ${height} ${format.toUpperCase()}, ${formats.bytes(bytes)}`;
}

/** What went wrong, in words for people. */
export function failureText({ failures }: Words, code: string): string {
  if (Object.hasOwn(failures, code)) return failures[code as keyof typeof failures];
  return fill(failures.other, { code });
}
