/** What people see of themselves: who they are, their password, where they are signed in. */
import type { VNode } from 'preact';
import type { Formats } from '../../words/formats.ts';
import { fill, type Words } from '../../words/words.ts';
import { button } from '../components/buttons.ts';
import { postForm, textField } from '../components/fields.ts';
import { dataTable, definitionList, panel, section, tabs } from '../components/lists.ts';
import { badge, time } from '../components/marks.ts';
import { html } from '../html.ts';
import { newPasswordField } from './sign-in-view.ts';

/** The two pages about oneself. */
export function profileTabs({ profile }: Words, active: 'profile' | 'sessions'): VNode {
  return tabs(profile.tabs, [
    { href: '/account/profile', label: profile.profileTab, active: active === 'profile' },
    { href: '/account/sessions', label: profile.sessionsTab, active: active === 'sessions' },
  ]);
}

export interface ProfileProps {
  readonly words: Words;
  readonly csrf: string;
  readonly mail: string;
  readonly accountName: string;
  readonly roleName: string;
  readonly mayHavePassword: boolean;
  /** Whether the password before is asked for. */
  readonly asksForCurrent: boolean;
  readonly errors?: { readonly current?: string | undefined; readonly next?: string | undefined };
}

export function profilePage(props: ProfileProps): VNode {
  const { words, mail, accountName, roleName, mayHavePassword } = props;
  const { profile } = words;
  return html`<div>
    ${profileTabs(words, 'profile')}
    ${definitionList([
      [profile.mail, mail],
      [profile.account, accountName],
      [profile.role, roleName],
    ])}
    ${section(
      { title: profile.passwordTitle, lead: mayHavePassword ? profile.passwordLead : undefined },
      mayHavePassword ? passwordForm(props) : panel(profile.byProvider),
    )}
  </div>`;
}

function passwordForm({ words, csrf, mail, asksForCurrent, errors = {} }: ProfileProps): VNode {
  const { profile } = words;
  return postForm(
    { action: '/account/profile/password', csrf },
    html`<input type="email" name="mail" value=${mail} autocomplete="username" readonly hidden />`,
    asksForCurrent
      ? textField({
          name: 'current',
          label: profile.current,
          type: 'password',
          error: errors.current,
          required: true,
          autocomplete: 'current-password',
          maxlength: 256,
        })
      : null,
    newPasswordField(words, { name: 'next', error: errors.next }),
    button({ label: asksForCurrent ? profile.changePassword : profile.set }),
  );
}

export interface SessionRow {
  readonly id: string;
  readonly isThis: boolean;
  readonly method: keyof Words['sessions']['methods'];
  readonly createdAtMs: number;
  readonly seenAtMs: number;
  readonly address: string;
  readonly agent: string;
}

export function sessionsPage(props: {
  readonly words: Words;
  readonly formats: Formats;
  readonly csrf: string;
  readonly rows: readonly SessionRow[];
}): VNode {
  const { words, formats, csrf, rows } = props;
  const { sessions } = words;
  const columns = [
    { label: sessions.browser },
    { label: sessions.address },
    { label: sessions.how },
    { label: sessions.began },
    { label: sessions.seen },
    { label: sessions.actions, silent: true },
  ];
  const others = rows.filter(({ isThis }) => !isThis);
  return html`<div class="stack">
    ${profileTabs(words, 'sessions')}
    ${dataTable({
      caption: sessions.title,
      columns,
      rows: rows.map(row => sessionCells(row, { words, formats, csrf })),
    })}
    ${
      others.length === 0
        ? null
        : postForm(
            { action: '/account/sessions/end-others', csrf, class: 'inline' },
            button({
              label: sessions.endOthers,
              kind: 'danger',
              confirm: sessions.endOthersConfirm,
            }),
          )
    }
  </div>`;
}

function sessionCells(
  row: SessionRow,
  { words, formats, csrf }: { words: Words; formats: Formats; csrf: string },
) {
  const { sessions } = words;
  const browser = browserOf(row.agent) ?? sessions.unknownBrowser;
  const began = formats.dateTime(row.createdAtMs);
  return [
    html`<span title=${row.agent}>${browser}</span>${
      row.isThis ? html` ${badge(sessions.this, 'accent')}` : null
    }`,
    html`<code>${row.address}</code>`,
    sessions.methods[row.method],
    time(row.createdAtMs, began),
    time(row.seenAtMs, formats.dateTime(row.seenAtMs)),
    row.isThis
      ? null
      : postForm(
          { action: `/account/sessions/${row.id}/end`, csrf, class: 'inline' },
          button({
            label: sessions.end,
            kind: 'quiet',
            describe: fill(sessions.endOf, { browser, time: began }),
          }),
        ),
  ];
}

/** In the order in which one that says several is the first. */
const BROWSERS = [
  ['Edg/', 'Edge'],
  ['OPR/', 'Opera'],
  ['Firefox/', 'Firefox'],
  ['Chrome/', 'Chrome'],
  ['Safari/', 'Safari'],
] as const;
const SYSTEMS = [
  ['Android', 'Android'],
  ['iPhone', 'iOS'],
  ['iPad', 'iPadOS'],
  ['Windows', 'Windows'],
  ['Mac OS X', 'macOS'],
  ['Linux', 'Linux'],
] as const;

/** `Firefox, Linux`; undefined: none that is known. */
export function browserOf(agent: string): string | undefined {
  const nameIn = (list: readonly (readonly [string, string])[]) =>
    list.find(([mark]) => agent.includes(mark))?.[1];
  const names = [nameIn(BROWSERS), nameIn(SYSTEMS)].filter(name => name !== undefined);
  return names.length === 0 ? undefined : names.join(', ');
}
