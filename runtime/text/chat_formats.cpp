// Built-in templates, after the public descriptions of the models that introduced the formats.
#include "text/chat_template.h"

namespace bowline::text::chat {
namespace {

// Separates the turns from a system message, whose text is `system`.
#define BOWLINE_TURNS(system)                            \
  "{% set turns = messages %}\n"                         \
  "{% set system = '' %}\n"                              \
  "{% if messages and messages[0].role == 'system' %}\n" \
  "{% set turns = messages[1:] %}\n"                     \
  "{% set system = " system                              \
  " %}\n"                                                \
  "{% endif %}\n"
#define BOWLINE_ALTERNATE                                                     \
  "{% if (message.role == 'user') != (loop.index0 % 2 == 0) or "              \
  "message.role not in ['user', 'assistant'] %}\n"                            \
  "{{ raise_exception('The roles user and assistant do not alternate.') }}\n" \
  "{%- endif %}\n"
constexpr NamedFormat kFormats[] = {
    {"chatml",
     R"({% for message in messages %}
{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\n' }}
{%- endif %}
)"},
    {"gemma",
     R"({{ bos_token }}
{%- for message in messages %}
{% if message.role == 'system' %}
{{ raise_exception('The format gemma has no system messages.') }}
{%- endif %}
{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('The roles user and assistant do not alternate.') }}
{%- endif %}
{{ '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' }}
{{- message.content | trim + '<end_of_turn>\n' }}
{%- endfor %}
{% if add_generation_prompt %}
{{ '<start_of_turn>model\n' }}
{%- endif %}
)"},
    // The system message is part of the first user message.
    {"llama2",
     BOWLINE_TURNS(R"('<<SYS>>\n' + messages[0].content + '\n<</SYS>>\n\n')")
         R"({% for message in turns %}
)" BOWLINE_ALTERNATE
         R"({% set content = system + message.content if loop.first else message.content %}
{% if message.role == 'user' %}
{{ bos_token + '[INST] ' + content | trim + ' [/INST]' }}
{%- else %}
{{ ' ' + content | trim + ' ' + eos_token }}
{%- endif %}
{% endfor %}
)"},
    {"llama3",
     R"({{ bos_token }}
{%- for message in messages %}
{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' }}
{%- endfor %}
{% if add_generation_prompt %}
{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
)"},
    // The system message is part of the first user message.
    {"mistral-v1", BOWLINE_TURNS(R"(messages[0].content + '\n\n')")
                       R"({{ bos_token }}
{%- for message in turns %}
)" BOWLINE_ALTERNATE R"({% if message.role == 'user' %}
{{ ' [INST] ' + (system if loop.first else '') + message.content + ' [/INST]' }}
{%- else %}
{{ ' ' + message.content + eos_token }}
{%- endif %}
{% endfor %}
)"},
    // The system message is part of the last user message.
    {"mistral-v3", BOWLINE_TURNS(R"(messages[0].content + '\n\n')")
                       R"({{ bos_token }}
{%- for message in turns %}
)" BOWLINE_ALTERNATE R"({% if message.role == 'user' %}
{{ '[INST] ' + (system if loop.revindex <= 2 and not (loop.revindex == 2 and turns[-1].role == 'user') else '') + message.content + '[/INST]' }}
{%- else %}
{{ ' ' + message.content + eos_token }}
{%- endif %}
{% endfor %}
)"},
    {"phi3",
     R"({% for message in messages %}
{{ '<|' + message.role + '|>\n' + message.content + '<|end|>\n' }}
{%- endfor %}
{% if add_generation_prompt %}
{{ '<|assistant|>\n' }}
{%- endif %}
)"},
    {"zephyr",
     R"({% for message in messages %}
{{ '<|' + message.role + '|>\n' + message.content + eos_token + '\n' }}
{%- endfor %}
{% if add_generation_prompt %}
{{ '<|assistant|>\n' }}
{%- endif %}
)"},
};

}  // namespace

std::span<const NamedFormat> named_formats() { return kFormats; }

}  // namespace bowline::text::chat
