import type { VNode } from 'preact';
import { type Child, html } from './html.ts';

export function postForm(
  props: {
    readonly action: string;
    /** Undefined on pages before sign-in, whose forms only Origin protects. */
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
  readonly note?: string;
  /** Unique on the page. Absent: the name. */
  readonly id?: string;
}

interface TextFieldProps extends FieldProps {
  readonly type?: 'text' | 'email' | 'password' | 'date' | 'url' | 'search';
  readonly value?: string | undefined;
  readonly required?: boolean;
  readonly autocomplete?: string;
  readonly inputmode?: 'numeric' | 'decimal';
  readonly placeholder?: string;
  readonly maxlength?: number;
  readonly minlength?: number;
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
