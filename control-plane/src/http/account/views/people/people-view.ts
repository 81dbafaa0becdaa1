/** The people of an account, and who is invited. */
import type { VNode } from 'preact';
import type { Formats } from '../../words/formats.ts';
import { fill, type Words } from '../../words/words.ts';
import { button } from '../components/buttons.ts';
import { postForm, radioGroup, textField } from '../components/fields.ts';
import { dataTable, panel, section } from '../components/lists.ts';
import { badge, codeBlock, notice, time } from '../components/marks.ts';
import { type Child, html } from '../html.ts';

type RoleName = keyof Words['roles'];
const ROLE_NAMES = ['owner', 'member', 'viewer'] as const satisfies readonly RoleName[];

export interface MemberRow {
  readonly userId: string;
  readonly mail: string;
  readonly role: RoleName;
  readonly byGroup: boolean;
  /** Whether it is known that the mail is theirs. */
  readonly isProven: boolean;
  readonly isSelf: boolean;
  readonly createdAtMs: number;
}

export interface OpenLinkRow {
  readonly id: string;
  readonly purpose: 'invitation' | 'sign-in';
  readonly mail: string;
  readonly role: RoleName;
  readonly createdBy: string;
  readonly expiresAtMs: number;
}

export interface PeopleProps {
  readonly words: Words;
  readonly formats: Formats;
  readonly csrf: string;
  readonly members: readonly MemberRow[];
  readonly invitations: readonly OpenLinkRow[];
  /** Of the operator. */
  readonly signInLinks: readonly OpenLinkRow[];
  /** Whether invitations go by mail. */
  readonly byMail: boolean;
  /** What lives on of somebody who was removed. */
  readonly keysLeft:
    | { readonly userId: string; readonly keys: readonly { name: string; prefix: string }[] }
    | undefined;
  /** The form again, where it was not accepted. */
  readonly invite?: {
    readonly mail: string;
    readonly role: string;
    readonly errors: { readonly mail?: string | undefined; readonly role?: string | undefined };
  };
  /** Shown this once; no url: it is in the mail alone. */
  readonly made?: {
    readonly mail: string;
    readonly url: string | undefined;
    readonly untilMs: number;
  };
  readonly problem?: string | undefined;
}

export function peoplePage(props: PeopleProps): VNode {
  const { words, made, problem } = props;
  const { people } = words;
  const lead = props.byMail ? people.inviteLeadByMail : people.inviteLead;
  return html`<div>
    ${problem === undefined ? null : notice('bad', problem)}
    ${made === undefined ? null : madeLink(made, props)}
    ${keysLeft(props)}
    ${membersTable(props)}
    ${section({ title: people.inviteTitle, lead }, inviteForm(props))}
    ${section({ title: people.invitations }, linksTable(props.invitations, props))}
    ${
      props.signInLinks.length === 0
        ? null
        : section(
            { title: people.signInLinks, lead: people.signInLinksLead },
            linksTable(props.signInLinks, props),
          )
    }
  </div>`;
}

function madeLink(made: NonNullable<PeopleProps['made']>, { words, formats }: PeopleProps): VNode {
  const { people, common } = words;
  const { mail, url } = made;
  const time = formats.dateTime(made.untilMs);
  if (url === undefined) return notice('good', fill(people.sent, { mail, time }));
  return notice(
    'good',
    html`<p>${fill(people.link, { mail, time })}</p>
      ${codeBlock(url, common, people.linkLabel)}`,
  );
}

function keysLeft({ words, csrf, keysLeft: left }: PeopleProps): Child {
  if (left === undefined) return null;
  const { people } = words;
  return notice(
    'warning',
    html`<p>${people.keysLiveOn}</p>
      <ul>${left.keys.map(key => html`<li>${key.name} <code>${key.prefix}</code></li>`)}</ul>
      ${postForm(
        { action: `/account/people/${left.userId}/revoke-keys`, csrf, class: 'inline' },
        button({
          label: people.revokeKeys,
          kind: 'danger',
          confirm: people.revokeKeysConfirm,
        }),
      )}`,
  );
}

function membersTable(props: PeopleProps): VNode {
  const { people } = props.words;
  const columns = [
    { label: people.mail },
    { label: people.role },
    { label: people.since },
    { label: people.actions, silent: true },
  ];
  const rows = props.members.map(row => memberCells(row, props));
  return dataTable({ caption: people.title, columns, rows });
}

function memberCells(row: MemberRow, { words, formats, csrf }: PeopleProps): Child[] {
  const { people, roles } = words;
  const { mail, userId } = row;
  return [
    html`${mail}${row.isSelf ? html` ${badge(people.you, 'accent')}` : null}${
      row.isProven ? null : html` <span class="hint">${people.unproven}</span>`
    }`,
    row.byGroup
      ? html`${roles[row.role]} <span class="hint">${people.byGroup}</span>`
      : postForm(
          { action: `/account/people/${userId}/role`, csrf, class: 'inline' },
          html`<select name="role" id=${`role-${userId}`}
            aria-label=${fill(people.roleOf, { mail })}>
            ${ROLE_NAMES.map(
              role =>
                html`<option value=${role} selected=${role === row.role}>${roles[role]}</option>`,
            )}
          </select>`,
          button({
            label: people.change,
            kind: 'quiet',
            describe: fill(people.changeOf, { mail }),
          }),
        ),
    time(row.createdAtMs, formats.date(row.createdAtMs)),
    row.byGroup
      ? null
      : postForm(
          { action: `/account/people/${userId}/remove`, csrf, class: 'inline' },
          button({
            label: people.remove,
            kind: 'danger',
            describe: fill(people.removeOf, { mail }),
            confirm: fill(people.removeConfirm, { mail }),
          }),
        ),
  ];
}

function inviteForm({ words, csrf, invite }: PeopleProps): VNode {
  const { people, roles } = words;
  return postForm(
    { action: '/account/people/invite', csrf },
    textField({
      name: 'mail',
      label: people.mail,
      type: 'email',
      value: invite?.mail ?? '',
      error: invite?.errors.mail,
      required: true,
      maxlength: 254,
      autocomplete: 'off',
    }),
    radioGroup({
      name: 'role',
      label: people.role,
      value: invite?.role ?? 'member',
      error: invite?.errors.role,
      options: ROLE_NAMES.map(role => ({
        value: role,
        label: roles[role],
        hint: people.roleHints[role],
      })),
    }),
    button({ label: people.invite }),
  );
}

function linksTable(links: readonly OpenLinkRow[], { words, formats, csrf }: PeopleProps): VNode {
  const { people, roles } = words;
  const columns = [
    { label: people.mail },
    { label: people.role },
    { label: people.invitedBy },
    { label: people.until },
    { label: people.actions, silent: true },
  ];
  const rows = links.map(({ id, purpose, mail, role, createdBy, expiresAtMs }) => [
    mail,
    roles[role],
    createdBy === 'operator' ? people.operator : createdBy,
    time(expiresAtMs, formats.dateTime(expiresAtMs)),
    postForm(
      { action: `/account/people/invitations/${id}/withdraw`, csrf, class: 'inline' },
      button({
        label: people.withdraw,
        kind: 'quiet',
        describe: fill(purpose === 'invitation' ? people.withdrawOf : people.withdrawLinkOf, {
          mail,
        }),
      }),
    ),
  ]);
  const isSignIn = links[0]?.purpose === 'sign-in';
  const caption = isSignIn ? people.signInLinks : people.invitations;
  const empty = html`<p>${people.noInvitations}</p>`;
  return dataTable({ caption, columns, rows, empty: panel(empty) });
}
