/**
 * What pages are made of: trees, never text put together. `html` is htm bound to preact; what stands
 * in `${}` is a child or an attribute that cannot become markup, and what escaping cannot make safe
 * (inline style and script, links of other schemes) is refused here. Icons, forms and lists on it.
 */

import htm from 'htm';
import { h, type VNode } from 'preact';
import { renderToString } from 'preact-render-to-string';

/** Where the account area is; documents lead there without loading it. */
export const ACCOUNT_PATH = '/account';

export type Child = VNode | string | number | null | undefined | false | readonly Child[];

const ADDRESSES = new Set(['href', 'src', 'action', 'formaction', 'poster']);
/** Paths of this host, places of the page, other hosts by http(s), mail; pictures made in scripts. */
const SAFE_ADDRESS = /^(?:$|\/(?![/\\])|[#?]|https?:\/\/|mailto:|data:image\/(?:png|webp|avif);)/i;
/** The policy of the pages forbids the first two; the others put markup in as text. */
const REFUSED = /^(?:style|on.*|dangerouslySetInnerHTML|innerHTML|srcdoc)$/i;

/** A page was to have what no page may have: a mistake of the page. */
export class MarkupError extends Error {}

function element(this: unknown[], type: string, props: Props, ...children: Child[]): VNode {
  // Tells htm not to keep this subtree for the next page: preact writes on the nodes it renders.
  this[0] = 3;
  for (const [name, value] of Object.entries(props ?? {})) {
    if (REFUSED.test(name)) throw new MarkupError(`<${type}> has the attribute ${name}`);
    if (!ADDRESSES.has(name.toLowerCase()) || value === undefined || value === null) continue;
    if (!SAFE_ADDRESS.test(String(value))) {
      throw new MarkupError(`<${type} ${name}> leads to another scheme or by another host's name`);
    }
  }
  return h(type, props, ...children);
}

type Props = Record<string, unknown> | null;

/**
 * A tree of the page: html`<p class=${name}>${text}</p>`. Several roots are a list of children.
 * @throws MarkupError for an attribute that a page must not have
 */
export const html = (htm as unknown as Htm).bind(element);

interface Htm {
  bind(create: typeof element): (strings: TemplateStringsArray, ...values: unknown[]) => VNode;
}

export function renderDocument(root: VNode): string {
  return `<!doctype html>${renderToString(root)}`;
}

export function renderPart(part: Child): string {
  return renderToString(h('div', null, part)).slice('<div>'.length, -'</div>'.length);
}

/** Icons of 16 units drawn with one stroke, decoration beside words: never the only name. */
const PATHS = {
  overview: 'M2.5 8.5 8 3l5.5 5.5M4 7.5V13h8V7.5',
  keys: 'M9.8 9.2a3.2 3.2 0 1 0-3-3M9.8 9.2A3.2 3.2 0 0 1 6.8 6.2M6.9 9.1 2.5 13.5M4.5 11.5l1.6 1.6',
  credits: 'M8 13.5A5.5 5.5 0 1 0 8 2.5a5.5 5.5 0 0 0 0 11ZM8 5v6M6 6.8h3a1.2 1.2 0 0 1 0 2.4H6',
  usage: 'M2.5 13.5h11M4.5 11V8M8 11V3.5M11.5 11V6',
  jobs: 'M2.5 4h11M2.5 8h11M2.5 12h7',
  playground:
    'm3 13 6.5-6.5M8 3.2l.6 1.7 1.7.6-1.7.6L8 7.8M12 2.5v2.6M10.7 3.8h2.6M12.3 9.2v2.4M11.1 10.4h2.4',
  people:
    'M6 7.5a2.3 2.3 0 1 0 0-4.6 2.3 2.3 0 0 0 0 4.6ZM1.8 13.2a4.2 4.2 0 0 1 8.4 0M10.5 3.2a2.2 2.2 0 0 1 0 4.2M11.7 9.4a4 4 0 0 1 2.5 3.8',
  audit: 'M4 2.5h6l2.5 2.5v8.5H4ZM6 7h4M6 9.5h4M6 12h2',
  settings: 'M2.5 4.5h5M10.5 4.5h3M9 3v3M2.5 11.5h2M7.5 11.5h6M6 10v3',
  profile: 'M8 8a2.6 2.6 0 1 0 0-5.2A2.6 2.6 0 0 0 8 8ZM3 13.5a5 5 0 0 1 10 0',
  docs: 'M3 3h4a1.5 1.5 0 0 1 1 .5A1.5 1.5 0 0 1 9 3h4v9.5H9a1.5 1.5 0 0 0-1 .5 1.5 1.5 0 0 0-1-.5H3ZM8 3.5V13',
  picture: 'M2.5 3h11v10h-11ZM2.5 11l3.2-3.4L8 10l2.2-2.2 3.3 3.2M10.4 5.9h.1',
  bell: 'M4 11.5h8c-.8-.8-1-2-1-4a3 3 0 0 0-6 0c0 2-.2 3.2-1 4ZM6.8 13.5h2.4',
  nodes: 'M3 3h10v4H3ZM3 9h10v4H3ZM5.2 5h.1M5.2 11h.1',
  copy: 'M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8Z',
  menu: 'M2.5 4h11M2.5 8h11M2.5 12h11',
  out: 'M6.5 2.5h-4v11h4M6 8h7.5M10.5 5l3 3-3 3',
  down: 'm4.5 6.5 3.5 3.5 3.5-3.5',
  check: 'm3 8.5 3.2 3.2L13 4.8',
  warning: 'M8 2.5 14 13H2ZM8 6.5v3M8 11.3v.1',
  info: 'M8 13.5A5.5 5.5 0 1 0 8 2.5a5.5 5.5 0 0 0 0 11ZM8 7.5V11M8 5.2v.1',
} as const;

export type IconName = keyof typeof PATHS;

export function icon(name: IconName): VNode {
  return html`<svg class="icon" viewBox="0 0 16 16" width="16" height="16" fill="none"
    stroke="currentColor" stroke-width="1.4" stroke-linecap="round" stroke-linejoin="round"
    aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
}

export function mark(): VNode {
  return html`<svg class="mark" viewBox="0 0 20 20" width="20" height="20" aria-hidden="true">
    <rect class="mark-ground" width="20" height="20" rx="5" />
    <path class="mark-checks" d="M10 2h4v4h-4ZM14 6h4v4h-4ZM10 10h4v4h-4ZM14 14h2l2-2v-2h-4Z" />
    <path class="mark-figure" d="M2 18a6.5 6.5 0 0 1 8-6.3A3.9 3.9 0 1 1 10 4.4V18Z" />
  </svg>`;
}

// Forms: buttons, and fields with a label, a hint, and the error of what was typed.

/** A form that changes something: POST with the session's csrf token. */
export function postForm(
  props: {
    readonly action: string;
    /** `signedIn.csrf`; undefined on pages of strangers, whose forms Origin alone protects. */
    readonly csrf: string | undefined;
    readonly hidden?: Readonly<Record<string, string>>;
    readonly class?: string;
  },
  ...children: Child[]
): VNode {
  const { action, csrf, hidden = {}, class: name = 'form' } = props;
  return html`<form method="post" action=${action} class=${name}>
    ${csrf === undefined ? null : html`<input type="hidden" name="csrf" value=${csrf} />`}
    ${Object.entries(hidden).map(
      ([name, value]) => html`<input type="hidden" name=${name} value=${value} />`,
    )}
    ${children}
  </form>`;
}

export function filterForm(action: string, ...children: Child[]): VNode {
  return html`<form method="get" action=${action} class="filters">${children}</form>`;
}

interface FieldProps {
  readonly name: string;
  readonly label: Child;
  readonly hint?: Child;
  readonly error?: string | undefined;
  /** Where the label says more than the page needs: `(optional)`. */
  readonly note?: string;
  /** Unique on the page; the name where absent. */
  readonly id?: string;
}

interface TextFieldProps extends FieldProps {
  readonly type?: 'text' | 'email' | 'password' | 'date' | 'url' | 'search';
  /** What was typed; never that of a password. */
  readonly value?: string | undefined;
  readonly required?: boolean;
  readonly autocomplete?: string;
  readonly inputmode?: 'numeric' | 'decimal';
  readonly placeholder?: string;
  readonly maxlength?: number;
  readonly minlength?: number;
  /** The page opens with the caret in it; at most one field of a page. */
  readonly autofocus?: boolean;
}

export function textField(props: TextFieldProps): VNode {
  const { type = 'text', value, hint, error, label, note, name, id = name, ...rest } = props;
  const control = html`<input id=${id} name=${name} type=${type} value=${value}
    ...${rest} ...${described(id, hint, error)} />`;
  return field({ ...props, id }, control);
}

export function textArea(
  props: FieldProps & {
    readonly value?: string | undefined;
    readonly maxlength?: number;
  },
): VNode {
  const { value = '', hint, error, name, id = name, maxlength } = props;
  const control = html`<textarea id=${id} name=${name} rows=${3} maxlength=${maxlength}
    ...${described(id, hint, error)}>${value}</textarea>`;
  return field({ ...props, id }, control);
}

interface Option {
  readonly value: string;
  readonly label: string;
  readonly hint?: Child;
}

export function selectField(
  props: FieldProps & {
    readonly options: readonly Option[];
    readonly value?: string | undefined;
  },
): VNode {
  const { options, value, hint, error, name, id = name } = props;
  const control = html`<select id=${id} name=${name} ...${described(id, hint, error)}>
    ${options.map(
      one => html`<option value=${one.value} selected=${one.value === value}>${one.label}</option>`,
    )}
  </select>`;
  return field({ ...props, id }, control);
}

export function checkboxGroup(
  props: FieldProps & { readonly options: readonly Option[]; readonly values: readonly string[] },
): VNode {
  return choices(props, 'checkbox', option => props.values.includes(option.value));
}

export function radioGroup(
  props: FieldProps & { readonly options: readonly Option[]; readonly value: string | undefined },
): VNode {
  return choices(props, 'radio', option => option.value === props.value);
}

/** One box by itself. @param props.value `on` where absent */
export function checkbox(
  props: FieldProps & { readonly checked: boolean; readonly value?: string },
): VNode {
  const { name, label, checked, value, hint, error, id = name } = props;
  return html`<div class="field">
    <label class="choice">
      <input id=${id} type="checkbox" name=${name} value=${value} checked=${checked}
        ...${described(id, hint, error)} />
      <span>${label}${hintOf(id, hint)}</span>
    </label>
    ${errorOf(id, error)}
  </div>`;
}

function choices(
  props: FieldProps & { readonly options: readonly Option[] },
  type: 'checkbox' | 'radio',
  isChosen: (option: Option) => boolean,
): VNode {
  const { name, label, note, hint, error, id = name, options } = props;
  return html`<fieldset class="field" id=${id} ...${described(id, hint, error)}>
    <legend>${label}${noteOf(note)}</legend>
    ${hintOf(id, hint)}
    <div class="choices">${options.map(
      (option, index) => html`<label class="choice">
        <input type=${type} name=${name} value=${option.value} checked=${isChosen(option)}
          id=${`${id}-${index}`} />
        <span>${option.label}${option.hint ? html`<span class="hint">${option.hint}</span>` : null}</span>
      </label>`,
    )}</div>
    ${errorOf(id, error)}
  </fieldset>`;
}

export function fileField(props: FieldProps & { readonly accept: string }): VNode {
  const { name, hint, error, accept } = props;
  const control = html`<input type="file" id=${name} name=${name} accept=${accept}
    ...${described(name, hint, error)} />`;
  return field({ ...props, id: name }, control);
}

function field(props: FieldProps & { readonly id: string }, control: VNode): VNode {
  const { id, label, note, hint, error } = props;
  return html`<div class=${`field${error === undefined ? '' : ' wrong'}`}>
    <label for=${id}>${label}${noteOf(note)}</label>
    ${control}
    ${hintOf(id, hint)}
    ${errorOf(id, error)}
  </div>`;
}

function described(id: string, hint: Child, error: string | undefined): Record<string, unknown> {
  const ids = [hint ? `${id}-hint` : '', error === undefined ? '' : `${id}-error`];
  const list = ids.filter(one => one !== '').join(' ');
  return {
    ...(list === '' ? {} : { 'aria-describedby': list }),
    ...(error === undefined ? {} : { 'aria-invalid': 'true' }),
  };
}

function noteOf(note: string | undefined): VNode | null {
  return note === undefined ? null : html`${' '}<span class="note">${note}</span>`;
}

function hintOf(id: string, hint: Child): VNode | null {
  return hint ? html`<span class="hint" id=${`${id}-hint`}>${hint}</span>` : null;
}

function errorOf(id: string, error: string | undefined): VNode | null {
  return error === undefined ? null : html`<span class="error" id=${`${id}-error`}>${error}</span>`;
}

type ButtonKind = 'primary' | 'secondary' | 'danger' | 'quiet';

interface ButtonProps {
  readonly label: Child;
  readonly kind?: ButtonKind;
  /** With a value the form says which of its buttons was pressed. */
  readonly name?: string;
  readonly value?: string;
  /** Asked before the form is sent; without scripts the form is sent at once. */
  readonly confirm?: string;
  readonly disabled?: boolean;
  /** What it does, where the label alone does not say it: `Revoke key Shop`. */
  readonly describe?: string;
}

export function button(props: ButtonProps): VNode {
  const { label, kind = 'primary', name, value, confirm, disabled = false, describe } = props;
  return html`<button type="submit" class=${`button ${kind}`} name=${name} value=${value}
    data-confirm=${confirm} disabled=${disabled} aria-label=${nameOf(label, describe)}>${label}</button>`;
}

export function actions(...children: Child[]): VNode {
  return html`<div class="actions">${children}</div>`;
}

/** Who speaks to the browser says what is to be seen: it is in the name (WCAG 2.5.3). */
function nameOf(label: Child, describe: string | undefined): string | undefined {
  if (describe === undefined || typeof label !== 'string') return describe;
  return describe.toLowerCase().includes(label.toLowerCase()) ? describe : `${label}: ${describe}`;
}

export function linkButton({
  href,
  label,
  kind = 'secondary',
  download = false,
}: {
  readonly href: string;
  readonly label: Child;
  readonly kind?: ButtonKind;
  readonly download?: boolean;
}): VNode {
  return html`<a class=${`button ${kind}`} href=${href} download=${download || undefined}>${label}</a>`;
}

/** Copies a text; hidden where scripts do not run. */
export function copyButton(
  text: string,
  words: { readonly copy: string; readonly copied: string },
): VNode {
  return html`<button type="button" class="button quiet copy" data-copy=${text}
    data-copied=${words.copied} hidden>${icon('copy')}<span aria-live="polite">${words.copy}</span></button>`;
}

/** What is copied more often than read: an id, a key's prefix. */
export function copyable(
  text: string,
  words: { readonly copy: string; readonly copied: string },
): VNode {
  return html`<span class="copied"><code>${text}</code>${copyButton(text, words)}</span>`;
}

/** A row's id, in its last column: its first eight digits tell rows apart. */
export function shortId(id: string): VNode {
  return html`<span class="mono soft" title=${id}>${id.slice(0, 8)}</span>`;
}

// What a page shows: tables, pairs, figures, pages of a list, tabs, states.

type Column = string | ColumnProps;

interface ColumnProps {
  readonly label: string;
  readonly align?: 'end';
  readonly silent?: boolean;
  /** The column gives room to the others: long text is cut by an ellipsis. */
  readonly cut?: boolean;
}

/** Numbers stand at the end of their column. */
export function end(label: string): Column {
  return { label, align: 'end' };
}

interface TableProps {
  readonly caption: string;
  readonly columns: readonly Column[];
  /** As many cells a row as there are columns; the first names the row. */
  readonly rows: readonly (readonly Child[])[];
  readonly empty?: Child;
  /** On a phone a row is two lines: the first and the third cell, then the others. */
  readonly isCompact?: boolean;
}

/** On a phone every row is a card: the first cell its title, the others with their column's name. */
export function dataTable({ caption, columns, rows, empty, isCompact }: TableProps): VNode {
  if (rows.length === 0 && empty) return html`<div class="panel">${empty}</div>`;
  const shown: ColumnProps[] = columns.map(one => (typeof one === 'string' ? { label: one } : one));
  const nameOf = ({ align, cut }: ColumnProps) => align ?? (cut ? 'cut' : undefined);
  return html`<div class=${`panel table${isCompact ? ' compact' : ''}`} role="region" aria-label=${caption} tabindex="0"><table>
    <caption class="silent">${caption}</caption>
    <thead><tr>${shown.map(
      column =>
        html`<th scope="col" class=${nameOf(column)}>${
          column.silent ? html`<span class="silent">${column.label}</span>` : column.label
        }</th>`,
    )}</tr></thead>
    <tbody>${rows.map(
      row =>
        html`<tr>${shown.map((column, index) => {
          const name = nameOf(column);
          const label = column.silent ? undefined : column.label;
          return index === 0
            ? html`<th scope="row" class=${name}>${row[index]}</th>`
            : html`<td class=${name} data-label=${label}>${inCell(row[index])}</td>`;
        })}</tr>`,
    )}</tbody>
  </table></div>`;
}

/** One box, so that a card on a phone has the column's name beside all of it. */
function inCell(content: Child): Child {
  const isEmpty = content === null || content === undefined || content === false || content === '';
  return isEmpty ? null : html`<div>${content}</div>`;
}

export function definitionList(pairs: readonly (readonly [label: string, value: Child])[]): VNode {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined);
  return html`<dl class="panel pairs">${shown.map(
    ([label, value]) => html`<div><dt>${label}</dt><dd>${value}</dd></div>`,
  )}</dl>`;
}

interface Figure {
  readonly label: string;
  readonly value: Child;
  readonly note?: Child;
}

export function figures(list: readonly Figure[]): VNode {
  return html`<dl class="figures">${list.map(
    ({ label, value, note }) => html`<div class="panel">
      <dt>${label}</dt><dd class="figure">${value}</dd>${note ? html`<dd class="hint">${note}</dd>` : null}
    </div>`,
  )}</dl>`;
}

/**
 * The pages of a list by keyset: forwards, and back to the first.
 * @param places where this page begins, undefined on the first; where the next one does, undefined
 * on the last
 * @param query what every page of the list is asked with
 */
export function pager(
  words: { readonly more: string; readonly first: string; readonly pages: string },
  path: string,
  { after, next }: { readonly after: unknown; readonly next: string | undefined },
  query: Query = {},
): VNode | null {
  if (next === undefined && after === undefined) return null;
  const link = (label: string, place: Query, rel?: string) =>
    html`<a class="button secondary" href=${withQuery(path, { ...query, ...place })} rel=${rel}>${label}</a>`;
  return html`<nav class="pager" aria-label=${words.pages}>
    ${after === undefined ? null : link(words.first, {})}
    ${next === undefined ? null : link(words.more, { after: next }, 'next')}
  </nav>`;
}

type NavLinks = readonly {
  readonly href: string;
  readonly label: string;
  readonly active: boolean;
}[];

/** The pages of one subject. */
export function tabs(label: string, links: NavLinks): VNode {
  return linkRow('tabs', label, links);
}

/** The ways of looking at one list or chart: one of few, at one click. */
export function segments(label: string, links: NavLinks): VNode {
  return linkRow('segments', label, links);
}

function linkRow(name: string, label: string, links: NavLinks): VNode {
  return html`<nav class=${name} aria-label=${label}>${links.map(
    link =>
      html`<a href=${link.href} aria-current=${link.active ? 'page' : undefined}>${link.label}</a>`,
  )}</nav>`;
}

export function section(
  props: { readonly title: string; readonly lead?: Child; readonly actions?: Child },
  ...children: Child[]
): VNode {
  const { title, lead, actions } = props;
  return html`<section class="section">
    <div class="section-head">
      <div><h2>${title}</h2>${lead ? html`<p class="lead">${lead}</p>` : null}</div>
      ${actions ? html`<div class="actions">${actions}</div>` : null}
    </div>
    ${children}
  </section>`;
}

/** What is there on demand, behind a button; open where it has to be seen. */
export function fold(
  props: {
    readonly label: string;
    readonly kind?: ButtonKind;
    readonly note?: string;
    readonly isOpen: boolean;
  },
  ...children: Child[]
): VNode {
  const { label, kind = 'secondary', note, isOpen } = props;
  return html`<details class="fold" open=${isOpen || undefined}>
    <summary><span class=${`button ${kind}`}>${label}${icon('down')}</span>${
      note ? html` <span class="note">${note}</span>` : null
    }</summary>
    <div class="folded">${children}</div>
  </details>`;
}

export function panel(...children: Child[]): VNode {
  return html`<div class="panel padded">${children}</div>`;
}

type Query = Readonly<Record<string, string | number | undefined>>;

/** The address with these parameters, but those that are undefined or empty. */
export function withQuery(path: string, query: Query): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== '');
  const text = new URLSearchParams(
    Object.fromEntries(given.map(([name, value]) => [name, String(value)])),
  ).toString();
  return text === '' ? path : `${path}?${text}`;
}

export type Tone = 'neutral' | 'good' | 'warning' | 'bad' | 'accent';

export function badge(label: string, tone: Tone = 'neutral'): VNode {
  return html`<span class=${`badge ${tone}`}>${label}</span>`;
}

/** A message about the whole page; a bad one is read out at once. */
export function notice(tone: Tone, ...children: Child[]): VNode {
  const name =
    tone === 'good' ? 'check' : tone === 'bad' || tone === 'warning' ? 'warning' : 'info';
  return html`<div class=${`notice ${tone}`} role=${tone === 'bad' ? 'alert' : 'status'}>
    ${icon(name)}<div>${children}</div>
  </div>`;
}

/** Where a list has no rows: what would be here, and how to begin. */
export function emptyState(props: {
  readonly title: string;
  readonly text?: Child;
  readonly action?: Child;
}): VNode {
  const { title, text, action } = props;
  return html`<div class="empty">
    <p class="empty-title">${title}</p>
    ${text ? html`<p>${text}</p>` : null}
    ${action ? html`<div class="actions">${action}</div>` : null}
  </div>`;
}

/**
 * A moment as the page has it without scripts; times.js makes it the reader's own.
 * @param at milliseconds or ISO 8601 @param none where there is no time
 */
export function time(
  at: number | string | null,
  format: (instantMs: number) => string,
  none: Child = null,
): Child {
  return timeElement(at, format, none, false);
}

/** The same in a list of what happened lately: `3 min ago`. */
export function ago(
  at: number | string | null,
  format: (instantMs: number) => string,
  none: Child = null,
): Child {
  return timeElement(at, format, none, true);
}

function timeElement(
  at: number | string | null,
  format: (instantMs: number) => string,
  none: Child,
  isLately: boolean,
): Child {
  if (at === null) return none;
  const instant = new Date(at);
  return html`<time datetime=${instant.toISOString()} data-ago=${isLately || undefined}>${format(instant.getTime())}</time>`;
}

/** `fill` of words with children in their places: `until {time}`, with the moment as `time` has it. */
export function phrase(text: string, values: Readonly<Record<string, Child>>): Child[] {
  const parts = text.split(/\{(\w+)\}/);
  return parts.map((part, index) =>
    index % 2 === 1 && Object.hasOwn(values, part) ? values[part] : part,
  );
}

/** A text of a machine that people copy: commands, secrets, addresses. */
export function codeBlock(
  text: string,
  words: { readonly copy: string; readonly copied: string },
  label?: string,
): VNode {
  return html`<div class="code">
    <pre tabindex="0" aria-label=${label} role=${label === undefined ? undefined : 'region'}><code>${text}</code></pre>
    ${copyButton(text, words)}
  </div>`;
}
