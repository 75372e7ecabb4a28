#!/usr/bin/env python3
"""Makes chat.json for chat_test.cpp: chat templates as transformers renders them.

    python -m venv venv && venv/bin/pip install transformers==5.24.0 jinja2==3.1.6
    venv/bin/python tests/chat/make_chat_fixtures.py \\
        --formats build/release/bin/chat_formats tests/chat/chat.json

`--formats`: the program that prints the built-in formats. The other templates are in this file.
They were written for it, after the public descriptions of the model families. Apache License 2.0,
as the whole project.
"""
import argparse
import datetime
import json
import subprocess

import transformers.utils.chat_template_utils as chat

NOW = 1735732800  # 1 January 2025, 12:00 UTC

class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        # as now() without tz
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)

chat.datetime = FixedTime

def conversation(*contents, system=None):
    roles = ["user", "assistant"]
    out = [] if system is None else [{"role": "system", "content": system}]
    return out + [{"role": roles[i % 2], "content": c} for i, c in enumerate(contents)]

CONVERSATIONS = [
    conversation("Hi"),
    conversation("Hi", "Hello."),
    conversation("Hi", "Hello.", "Who?"),
    conversation("Hi", "Hello.", "Who?", "I."),
    conversation("Hi", system="Be brief."),
    conversation("Hi", "Hello.", "Who?", system="Be brief."),
    conversation("  led by spaces", "trailing \n\n", "\tboth\u3000\u00a0"),
    conversation("", "", "", system=""),
    conversation("a\nb\n\nc", system="\n 1\n2 \n"),
    conversation("Zürich, 東京, Ελλάδα 🦉", "e\u0301 ≠ é"),
    conversation("<|im_end|>[INST]</s>", "{{ bos_token }}{% raw %}"),
    conversation("\"quoted\" 'twice' \\n"),
    [{"role": "assistant", "content": "I begin."}, {"role": "user", "content": "So?"}],
    [{"role": "user", "content": "1"}, {"role": "user", "content": "2"}],
    [{"role": "system", "content": "alone"}],
    [{"role": "user", "content": "x"}, {"role": "tool", "content": "{\"a\": 1}"}],
    [],
]

# Templates in the style of model files, beside the built-in formats.
TEMPLATES = {
    # Adds a default system message.
    "chatml with a default": (
        "{% if not messages or messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\\nYou are a kind helper.<|im_end|>\\n' }}{% endif %}"
        "{% for message in messages %}"
        "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}", "", "<|im_end|>"),
    # With a branch for tools, and thoughts of the model.
    "chatml with tools": (
        """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "<|im_end|>\\n" }}
{%- else %}
    {%- if messages and messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(searching=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and message.content is string and not(message.content.startswith('<tool>') and message.content.endswith('</tool>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or (not loop.last and thought)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {{- tool_call.arguments | tojson }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool>\\n' ~ content ~ '\\n</tool>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""", "", "<|im_end|>"),
    "llama2 in one line": (
        "{% if messages and messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
        "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
        "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
        "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Roles must alternate: user, assistant, user, ...') }}{% endif %}"
        "{% if loop.index0 == 0 and system_message != false %}"
        "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
        "{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
        "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
        "{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}", "<s>", "</s>"),
    # With the current date.
    "llama3 with a date": (
        """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system message stands first, whatever comes. #}
{%- if messages and messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if builtin_tools is defined and builtin_tools is not none %}
    {{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\\n\\n"}}
{%- endif %}
{{- "Today: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""", "<|begin_of_text|>", "<|eot_id|>"),
    "gemma that merges": (
        """{{ bos_token }}
{%- if messages and messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '

' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '

' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {{ item['text'] | trim }}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
""", "<bos>", "<eos>"),
    "mistral with tools": (
        """{%- if messages and messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}

{#- Roles alternate, but for tools. #}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + "}[/TOOL_RESULTS]" }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported!") }}
    {%- endif %}
{%- endfor %}
""", "<s>", "</s>"),
    "zephyr in lines": (
        """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>
'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}""", "<s>", "</s>"),
    "phi3 with its roles": (
        "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') %}"
        "{{'<|user|>' + '\\n' + message['content'] + '<|end|>' + '\\n' + '<|assistant|>' + '\\n'}}"
        "{% elif (message['role'] == 'assistant') %}{{message['content'] + '<|end|>' + '\\n'}}{% endif %}{% endfor %}",
        "<s>", "<|endoftext|>"),
}

SPECIAL = {"gemma": ("<bos>", "<eos>"), "llama3": ("<|begin_of_text|>", "<|eot_id|>"), "chatml": ("", "<|im_end|>"),
           "phi3": ("<s>", "<|endoftext|>")}

# One language feature each. The conversation is the sixth of the list above.
FEATURES = [
    # White space.
    "a\n  {% if true %}\n  b\n  {% endif %}\nc\n",
    "a\n  {%- if true -%}\n  b\n  {%+ endif +%}\nc",
    " {% if true %} {# c #}\n x{% endif %}",
    "{{ 1 }}\n{{ 2 -}}\n\n{{- 3 }}\n",
    "a {#- c -#} b\n  {# d #}\ne{# f #}",
    "x\r\ny\rz\n{% if true %}\r\nw{% endif %}",
    "{% raw %}{{ no }}{% if %}{% endraw %}!",
    "a\n {%- raw -%} {{ no }} \n {%- endraw -%} \nb",
    "\n\n a\n\n",
    "{{ '{%' }}{ { %}",
    "\u3000{%- if true %}\u00a0{%- endif %}\u2003",
    # Texts.
    "{{ 'a\\'b\\\\c\\td\\x41\\u00e9\\U0001F989\\q' }}{{ \"it's\" 'joined' \"\\\"\" }}",
    "{{ 'äöü'[1] }}{{ 'äöü'[-1] }}{{ 'äöüß'[1:3] }}{{ 'äöü'[::-1] }}{{ 'abcdef'[::2] }}{{ 'abcdef'[-3:] }}{{ 'abc'[5:] }}",
    "{{ 'ab' * 3 }}{{ 'a' ~ 1 ~ none ~ true ~ undefined_name }}",
    "{{ 'a,b,,c'.split(',') | join('|') }} {{ '  a  b c '.split() | join('|') }} {{ 'a-b-c'.split('-', 1) | join('|') }}",
    "{{ 'a-b-c'.rsplit('-', 1) | join('|') }} {{ ' a b  c '.split(none, 1) | join('|') }} {{ ' a b  c '.rsplit(none, 1) | join('|') }}",
    "{{ 'xxaxx'.strip('x') }}{{ 'xyaxy'.lstrip('yx') }}{{ 'axy'.rstrip('xy') }}{{ '\u2003a\u00a0'.strip() }}|",
    "{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'abc'.find('c') }}{{ 'abc'.find('z') }}",
    "{{ 'aXbX'.replace('X', '--') }}{{ 'aXbX'.replace('X', '', 1) }}{{ 'aXb' | replace('X', 'Y') }}",
    "{{ 'hello world'.title() }}{{ 'hELLO'.capitalize() }}{{ 'Abc'.upper() }}{{ 'ABC' | lower }}{{ 'abc' | upper }}{{ 'aBC' | capitalize }}",
    "{{ 'prefix-x'.removeprefix('prefix-') }}{{ 'x.txt'.removesuffix('.txt') }}{{ 'a\\nb\\r\\nc\\n'.splitlines() | join('|') }}",
    "{{ ', '.join(['a', 'b']) }}{{ ['a', 1, none] | join }}",
    "{{ 'x' | length }}{{ 'ä🦉' | length }}{{ [] | length }}{{ messages | count }}",
    "{{ ' 42 ' | int + 1 }}{{ 'no' | int }}{{ 'no' | int(7) }}{{ true | int }}{{ 42 | string + '!' }}",
    "{{ '  x ' | trim }}|{{ 'xax' | trim('x') }}|{{ 3 | trim }}|{{ none | trim }}",
    # Numbers and logic.
    "{{ 1 + 2 * 3 - 4 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ -(3) }} {{ +3 }} {{ 0 }}",
    "{{ 1 < 2 < 3 }}{{ 3 > 2 > 2 }}{{ 1 == true }}{{ 'a' < 'b' }}{{ [1, 2] < [1, 3] }}{{ (1,) == (1,) }}",
    "{{ not true }}{{ true and 'x' }}{{ '' or 'y' }}{{ none or false or 0 }}{{ 1 and 0 and 2 }}{{ not '' and not [] }}",
    "{{ 'a' in 'abc' }}{{ 2 in [1, 2] }}{{ 'role' in messages[0] }}{{ 'x' not in messages[0] }}{{ not 'a' in 'b' }}",
    "{{ 'a' if true }}{{ 'b' if false }}{{ 'c' if false else 'd' if false else 'e' }}",
    "{{ 1 is odd }}{{ 2 is even }}{{ 6 is divisibleby 3 }}{{ 6 is divisibleby(4) }}{{ 1 is eq 1 }}{{ 1 is in [1] }}{{ 2 is gt 1 }}",
    "{{ x is defined }}{{ messages is defined }}{{ x is undefined }}{{ none is none }}{{ tools is none }}{{ tools is not none }}",
    "{{ 'a' is string }}{{ 1 is number }}{{ true is number }}{{ true is integer }}{{ true is boolean }}{{ messages is iterable }}{{ messages[0] is mapping }}{{ 'a' is sequence }}{{ 1 is iterable }}",
    "{{ false is false }}{{ 0 is false }}{{ true is true }}{{ x is iterable }}{{ x is sequence }}{{ x is string }}",
    "{{ x | default('d') }}{{ '' | default('d') }}{{ '' | default('d', true) }}{{ none | d('e', boolean=true) }}{{ x | default }}",
    "{{ x == y }}{{ x == none }}{{ x != 1 }}{{ x | length }}{{ 'a' in x }}{% for i in x %}!{% else %}e{% endfor %}",
    "{{ true + true }}{{ true == 1 }}{{ 1 == 'a' }}{{ (1, 2) == [1, 2] }}{{ {'a': 1} == {'a': 1} }}",
    # Lists and dicts.
    "{{ [1, 2, 3][-1] }}{{ [1, 2, 3][1:] | join }}{{ [1, 2, 3][::-1] | join }}{{ (1, 2)[0] }}{{ [[1, 2], [3]][0][1] }}{{ [1][5] is defined }}",
    "{{ {'a': 1, 'b': [2]}.b[0] }}{{ {'a': 1}['a'] }}{{ {'a': 1}.get('b', 'z') }}{{ {'a': 1}.get('b') }}{{ {'a': 1}.x is defined }}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}{% for k in {'a': 1} %}{{ k }}{% endfor %}{% for k, v in {'a': 3} | items %}{{ k }}{{ v }}{% endfor %}",
    "{{ {'a': 1, 'b': 2}.keys() | list | join }}{{ {'a': 1, 'b': 2}.values() | join(',') }}{{ dict(a=1).a }}",
    "{{ messages | map(attribute='role') | join(' ') }} {{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join(',') }}",
    "{{ messages | rejectattr('role', 'in', ['user', 'system']) | list | length }}{{ [1, 0, 2] | select | join }}{{ [1, 0, 2] | reject('odd') | join }}{{ ['a ', ' b'] | map('trim') | join('|') }}",
    "{{ (messages | first).role }}{{ (messages | last).content }}{{ [3, 1] | reverse | join }}{{ 'abc' | reverse }}{{ [] | first is defined }}",
    "{{ ([] | select) is defined }}{% if [] | select %}iterators are true{% endif %}{% if [] %}no{% endif %}",

    "{{ range(3) | join }}{{ range(1, 4) | join }}{{ range(5, 0, -2) | join(' ') }}{{ ([1, 2] + [3]) | join }}",
    "{{ {'a': [1, true, none, 'x\"\\n\u00e9/\\x01\\x7f'], 'b': {}, 'c': []} | tojson }}",
    "{{ {'a': [1, {'b': 2}], 'c': [], 'd': {}} | tojson(indent=2) }}",
    "{{ messages[0] | tojson }}{{ 'a' | tojson }}{{ none | tojson }}{{ (1, 2) | tojson }}",
    # Loops and names.
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }} {% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}{{ m.content }};{% endfor %}",
    "{% for m in messages %}{{ loop.previtem.role if not loop.first }}>{{ loop.nextitem.role if not loop.last }} {% endfor %}",
    "{% for a in [1, 2] %}{% for b in [3, 4] %}{{ a }}{{ b }}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in [1] %}{% continue %}{% else %}else{% endfor %}{% for i in [] %}{% else %}empty{% endfor %}{% for i in [1] %}{{ i }}{% else %}no{% endfor %}",
    "{% for i in [1, 2] %}{% break %}{% else %}broken{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% set ns = namespace(n=0, s='') %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% set ns.s = ns.s ~ m.role[0] %}{% endfor %}{{ ns.n }}{{ ns.s }}{{ ns.x is defined }}",
    "{% set ns = namespace(on=true) %}{% for i in range(5) if ns.on %}{{ i }}{% if i == 2 %}{% set ns.on = false %}{% endif %}{% endfor %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% for x, y in [(1, 2), [3, 4]] %}{{ x }}-{{ y }} {% endfor %}",
    "{% set x %}  block {{ 1 }}{% set y = 3 %} {% endset %}[{{ x }}]{{ y is defined }}{% set z | trim | upper %} q {% endset %}[{{ z }}]",
    "{% filter trim | upper %}  loud {% endfilter %}!",
    "{% generation %}{{ messages[0].role }}{% set q = 1 %}{% endgeneration %}{{ q is defined }}",
    "{% macro m(a, b='B', c=a) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(1, c=3) }}{{ m(b=5, a=4) }}",
    "{% set x = 'outer' %}{% macro m() %}{{ x }}{{ messages | length }}{% set x = 'in' %}{% endmacro %}{{ m() }}{% set x = 'later' %}{{ m() }}{{ x }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{% if x %}a{% elif messages %}b{% else %}c{% endif %}{% if false %}{% elif false %}{% else %}d{% endif %}",
    "{% set messages = messages[1:] %}{{ messages | length }}{{ bos_token }}{{ eos_token }}",
    "{% for c in 'aä' %}({{ c }}){% endfor %}{% for i in (1, 2) %}{{ i }}{% endfor %}",
    "{% if true: %}colon{% endif %}",
    "{{ strftime_now('%d %b %Y, %A %a %B %m %y %H:%M:%S %%') }}",
    "{% set d = {'type': 'x', 'content': {'k': 'v'}} %}{{ d.content.k }}{{ d['content']['k'] }}{{ d.type }}",
    "{{ messages[0].role.upper()[0] }}{{ (messages[0]['content'] ~ '!').strip('!') }}{{ messages[-1]['content'][:2] }}",
    "{{ '%' }}{{ \"}}\" }}{{ '%}' }}{% set x = {'a': {'b': 1}} %}{{ x.a.b }}",
    "{{ messages[0].content.content is defined }}{{ none.x is defined }}{{ true.x is defined }}",
    # Floats, printed as Python does.
    "{{ 1.5 }} {{ 1.0 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 1E16 }} {{ 123456789012345.6 }} {{ 0.1 + 0.2 }} {{ 1_000 }} {{ 1_0.2_5 }} {{ 1e-5 }} {{ 0.0001 }}",
    "{{ 1 / 2 }} {{ 4 / 2 }} {{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ -7.5 % 2 }} {{ 7 % -2.5 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }} {{ -1.5 }} {{ +2.5 }} {{ 1.5 * 2 }} {{ 3 - 0.5 }}",
    "{{ 1.5 < 2 }}{{ 2.0 == 2 }}{{ 1.5 == 1.5 }}{{ 2 > 1.5 }}{{ 0.0 or 'zero' }}{{ 1.5 is number }}{{ 1.5 is float }}{{ 1 is float }}{{ 1.5 is integer }}{{ 2.0 in [1, 2] }}",
    "{{ 2.5 | round }} {{ 3.5 | round }} {{ 2.675 | round(2) }} {{ 2.1 | round(method='ceil') }} {{ 2.19 | round(1, 'floor') }} {{ 3 | round }} {{ -2.7 | abs }} {{ 3.9 | int }} {{ '3.7' | int }} {{ '2.5' | float }} {{ 'x' | float }} {{ 2 | float }} {{ 'x' | float(1) }}",
    # Lists and dicts as Python prints them.
    "{{ [1, 2.5, none, true, 'a'] }} {{ (1,) }} {{ (1, 'b') }} {{ () }} {{ [] }} {{ {} }} {{ {'a': [1], 2: {'b': none}} }} {{ messages[0] }}",
    "{{ [\"it's\", 'say \"x\"', \"both ' and \\\"\", 'a\\\\b', 'n\\nt\\tr\\r', '\\x01\\x7f\\xa0\\xad', 'Zürich 東京 🦉', '\\u200b\\u2028\\ue000\\u0301', x] }}",
    "{{ {'a': 1, 'b': 2}.keys() }} {{ {'a': 1}.values() }} {{ {'a': 1}.items() }} {{ 'x' ~ [1] ~ {'a': 'b'} }} {{ [1] | string }} {{ [[1], ['a']] | join(';') }}",
    "{% set d = {'a': 1, 'b': 2} %}{% set v = d.items() %}{% for k, x in v %}{{ k }}{% endfor %}{% for k, x in v %}{{ x }}{% endfor %}{{ v | length }}{{ d.keys() is sequence }}{{ d.copy() == d }}{{ d.keys()[0] is defined }}",
    # JSON.
    "{{ {'b': 1, 'a': [1.5, 'é🦉\\x7f'], 'c': {'z': 1, 'y': 2}} | tojson(separators=(',', ':'), sort_keys=true) }}{{ 'é🦉\\x7f\\x01' | tojson(ensure_ascii=true) }}{{ '<a href=\"x\">&\\'' | tojson }}",
    "{{ {'a': [1, 2], 'b': {}} | tojson(indent=4, separators=(', ', ': ')) }}{{ [1, {'a': 2}] | tojson(indent='\\t') }}{{ [1] | tojson(indent=0) }}{{ [1, 2] | tojson(false, none, [';', '=']) }}",
    "{{ {1: 2, true: 3, none: 4, 1.5: 5} | tojson }}{{ [1e20, 1e-7, 0.1, -0.0, 100.0] | tojson }}{{ {2: 'b', 1: 'a'} | tojson(sort_keys=true) }}",
    # Format strings.
    "{{ '{} and {}'.format('a', 1) }} {{ '{1}{0}{1}'.format('a', 'b') }} {{ '{x} {y}'.format(x=1, y=[1, 'b']) }} {{ '{{}} {}'.format(none) }} {{ '{!r}|{!s}'.format('a', 'b') }}",
    "{{ '{:>6}|{:<6}|{:^6}|{:*^7}|{:6}|{:.2}'.format('ab', 'cd', 'ef', 'gh', 'ij', 'klm') }} {{ '{:5d}|{:<5}|{:05d}|{:+d}|{:,}|{:x}|{:X}|{:b}|{:o}|{:_}'.format(42, 7, -42, 3, 1234567, 255, 255, 5, 8, 1234567) }}",
    "{{ '{:.2f}|{:8.3f}|{:e}|{:.0f}|{:%}|{:.1%}|{:g}|{:08.2f}|{:,.1f}|{}|{:6}'.format(3.14159, 2.5, 12345.678, 2.5, 0.25, 0.256, 0.0001, -1.5, 1234567.89, 1.0, 2.5) }} {{ '{0[role]} {0.role} {1[1]}'.format(messages[0], ['a', 'b']) }}",
    # Calls with a body.
    "{% macro box(title) %}[{{ title }}: {{ caller() }}]{% endmacro %}{% call box('t') %}in {{ messages | length }}{% endcall %}{% call box(title='u') %}{% endcall %}",
    "{% macro rows(items) %}{% for i in items %}{{ caller(i, loop.index) }};{% endfor %}{% endmacro %}{% call(item, n=0) rows(['a', 'b']) %}{{ n }}={{ item }}{% endcall %}",
    "{% macro m() %}{{ caller() if caller else 'none' }}{{ varargs | length }}{{ kwargs | length }}{{ kwargs.x }}{% endmacro %}{{ m() }}{{ m(1, 2, x='y') }}{% call m(3) %}c{% endcall %}",
    "{% macro s(a, b, c=3) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ s(*[1, 2]) }}{{ s(1, **{'b': 5, 'c': 6}) }}{{ s(*[1], b=2) }}",
    # Time.
    "{{ strftime_now('%A %a %w %d %b %B %m %y %Y %H %I %p %M %S %f %j %U %W %c %x %X %%|%z%Z|%e %D %F %T %R %r %k %l %u %V %G %h %n %-d %-m %-H %-I %P') }}",
    # More filters, tests and methods.
    "{{ [3, 1, 2] | sort | join }}{{ ['b', 'A', 'c'] | sort | join }}{{ ['b', 'A'] | sort(case_sensitive=true, reverse=true) | join }}{{ messages | sort(attribute='content') | map(attribute='role') | join(',') }}{{ [1, 2, 1] | unique | join }}{{ ['a', 'A'] | unique | join }}",
    "{{ {'b': 1, 'A': 2} | dictsort }}{{ {'a': 2, 'b': 1} | dictsort(by='value') }}{{ [1, 3, 2] | max }}{{ ['b', 'A'] | min }}{{ [] | max is defined }}{{ 'a b' | title }}{{ 'don\\'t (stop) a_b <|im_end|> [x]{y} 2nd' | title }}{{ 'don\\'t a_b <|im_end|>'.title() }}",
    "{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\n\\nb\\n' | indent('> ', first=false, blank=true) }}|{{ '' | indent(2, true) }}|{{ 'a\\n' | indent }}|",
    "{{ 'a-b-c'.partition('-') }}{{ 'a-b-c'.rpartition('-') }}{{ 'abc'.partition('x') }}{{ 'banana'.count('an') }}{{ 'banana'.rfind('an') }}{{ 'banana'.index('n') }}{{ '7'.zfill(3) }}{{ '-7'.zfill(4) }}{{ 'a'.ljust(3, '.') }}{{ 'a'.rjust(3) }}",
    "{{ '12'.isdigit() }}{{ ''.isdigit() }}{{ 'ab'.isalpha() }}{{ 'a1'.isalnum() }}{{ ' \\t'.isspace() }}{{ 'aB'.islower() }}{{ 'AB1'.isupper() }}{{ [1, 2, 1].count(1) }}{{ ['a', 'b'].index('b') }}",
    "{{ 'abc'['role'] is defined }}{{ [1]['x'] is defined }}{{ [1].x is defined }}{{ range is callable }}{{ 1 is callable }}{{ ('<' | safe) ~ '<' }}{{ {'a': '<'} | tojson | safe }}",
    # Errors.
    "{{ raise_exception('No: ' + messages[0].role) }}",
]

def render(template, messages, add_generation_prompt, bos, eos):
    special = {k: v for k, v in (("bos_token", bos), ("eos_token", eos)) if v}
    try:
        out, _ = chat.render_jinja_template([messages], chat_template=template, add_generation_prompt=add_generation_prompt, **special)
        return {"text": out[0]}
    except Exception as error:  # from the template, or from Python code in it
        raised = type(error).__name__ == "TemplateError"
        return {"error": str(error) if raised else ""}

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--formats", required=True)
    parser.add_argument("out")
    args = parser.parse_args()
    named = json.loads(subprocess.run([args.formats], check=True, capture_output=True, text=True).stdout)
    families = [(n, t, *SPECIAL.get(n, ("<s>", "</s>"))) for n, t in named.items()] + [(n, *t) for n, t in TEMPLATES.items()]
    fixture = {"now": NOW, "conversations": CONVERSATIONS, "families": [], "features": []}
    for name, template, bos, eos in families:
        cases = [[render(template, c, add, bos, eos) for add in (False, True)] for c in CONVERSATIONS]
        fixture["families"].append({"name": name, "template": template, "bos": bos, "eos": eos, "cases": cases})
    for template in FEATURES:
        result = render(template, CONVERSATIONS[5], True, "<s>", "</s>")
        assert "text" in result or result["error"], (template, result)
        fixture["features"].append({"template": template, **result})
    with open(args.out, "w", encoding="utf-8") as f:
        json.dump(fixture, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")

if __name__ == "__main__":
    main()
